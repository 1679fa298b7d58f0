// The locks of the npm package redlock over ioredis, one step at a time. Both
// are looked for where require() looks, and in $NODE_PATH. $REDLOCK is the major
// version, 4 or 5.
//
// acquire KEY[,KEY...] MS | release KEY TOKEN | extend KEY TOKEN MS | probe
// acquire prints the token. Exit status 1: redlock says that it is not so; 77:
// there is no redlock.
const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');

async function load(name) {
    // Version 5 is a module for import() alone, which does not go by $NODE_PATH;
    // and there may be both versions.
    for (const folder of require.resolve.paths(name)) {
        const home = path.join(folder, name);
        if (!fs.existsSync(path.join(home, 'package.json'))) continue;
        const about = JSON.parse(fs.readFileSync(path.join(home, 'package.json')));
        if (about.version.match(/\d+/)[0] !== process.env.REDLOCK) continue;
        const start = about.exports ? about.exports['.'].import : about.main;
        return import(pathToFileURL(path.join(home, start)).href);
    }
    throw new Error(`no ${name} ${process.env.REDLOCK}`);
}

async function main([action, key, ...rest]) {
    let redlock, ioredis;
    try {
        redlock = await load('redlock');
        ioredis = require('ioredis');
    } catch (error) {
        console.error(String(error));
        return 77;
    }
    if (action === 'probe') return 0;
    const server = new ioredis(path.join(process.env.T, 'redis.sock'));
    const Redlock = redlock.default;
    const locks = new Redlock([server], { retryCount: 0 });
    const keys = key.split(',');
    // A lock that some other process has taken: the token is all that counts.
    const held = (token) => redlock.Lock
        ? new redlock.Lock(locks, keys, token, [], Date.now() + 60000)
        : new Redlock.Lock(locks, keys, token, Date.now() + 60000);
    try {
        if (action === 'acquire') console.log((await locks.acquire(keys, Number(rest[0]))).value);
        if (action === 'release') await locks.release(held(rest[0]));
        if (action === 'extend') await locks.extend(held(rest[0]), Number(rest[1]));
        return 0;
    } catch (error) {
        if (!['LockError', 'ExecutionError', 'ResourceLockedError'].includes(error.name)) throw error;
        return 1;
    } finally {
        server.disconnect();
    }
}

main(process.argv.slice(2)).then((status) => { process.exitCode = status; });
