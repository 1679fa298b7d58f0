<?php
// Laravel's Cache::lock over the phpredis extension, one step at a time.
//
// acquire NAME MS | release NAME TOKEN | force NAME
// acquire prints the owner. Exit status 1: Laravel says that it is not so.
// Environment: REDIS_PREFIX and CACHE_PREFIX, as in an application's .env;
// SERIALIZE=1 where phpredis is to serialise what it sends.
require_once 'Illuminate/Redis/autoload.php';
require_once 'Illuminate/Cache/autoload.php';

$redis = new Illuminate\Redis\RedisManager(null, 'phpredis', [
    'options' => [
        'prefix' => getenv('REDIS_PREFIX'),
        'serializer' => getenv('SERIALIZE') ? Redis::SERIALIZER_PHP : Redis::SERIALIZER_NONE,
    ],
    'default' => ['host' => getenv('T') . '/redis.sock', 'port' => 0, 'database' => 0],
]);
$store = new Illuminate\Cache\RedisStore($redis, getenv('CACHE_PREFIX'), 'default');
[, $action, $name] = $argv;
switch ($action) {
    case 'acquire':
        $lock = $store->lock($name, (int) ceil($argv[3] / 1000));
        $done = $lock->get();
        if ($done) {
            echo $lock->owner(), "\n";
        }
        break;
    case 'release':
        $done = $store->restoreLock($name, $argv[3])->release();
        break;
    case 'force':
        $store->lock($name)->forceRelease();
        $done = true;
}
exit($done ? 0 : 1);
