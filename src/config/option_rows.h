/* The options, one row each, in the order of --help. -h shows only the first group. config/values.c
 * turns the rows into the table option_rows, and config/options.h turns them into ids. An option
 * without a help text exists only to be refused with a reason. Columns:
 *
 * OPTION(ID, name, letter, function that reads the value (values.c), member of struct options,
 *        default, argument or choices (NULL: yes or no), actions that use the option (values.c),
 *        circumstances (options.h; the option has an effect if one of them holds), help)
 * ACTION(ID, name, letter, function that reads the value, member of struct options, argument,
 *        whether a lock's name follows, whether the store must keep a record of the lock, help)
 *
 * dlock.conf and DLOCK_* variables can set an option if its actions contain IN_FILES, as most
 * groups of actions do. Options with HELD determine the store and the key of a lock, so DLOCK_HELD,
 * which tells a command which locks it runs under, contains them (held_store.c). */

/* Used daily */
OPTION(NONBLOCK, "nonblock", 'n', flag, AT(nonblock), NULL, NULL, WAITING, ON_ANY,
       "do not wait for the lock")
OPTION(WAIT, "wait", 'w', wait_limit, AT(wait), "infinity", "DURATION", WAITING, ON_ANY,
       "wait at most this long")
OPTION(TTL, "ttl", 't', ttl, AT(ttl), "1h", "DURATION", TAKING | BY(EXTEND) | BY(HISTORY), ON_ANY,
       "how long the lock holds, at most 30d; the command is killed at its end")
OPTION(CONFLICT_EXIT_CODE, "conflict-exit-code", 'E', status, AT(conflict_status), "75", "N",
       WAITING, ON_CONFLICT, "exit status if the lock is held")
OPTION(SHARED, "shared", 's', shared, NOWHERE, NULL, NULL, TAKING, ON_ANY,
       "any number of shared holders, and no exclusive one")
OPTION(COMMAND, "command", 'c', text, AT(shell_command), NULL, "STRING", BY(RUN), ON_ANY,
       "run this with $SHELL -c instead of COMMAND")
OPTION(MESSAGE, "message", 'm', message, AT(message), NULL, "TEXT", TAKING | BY(PAUSE), ON_RECORDS,
       "why: shown to waiters, by --status and by --list")
OPTION(TREE, "tree", 0, flag, AT(tree), NULL, NULL, BY(RUN) | SHOWN, ON_ANY,
       "keep the lock until the command's descendants end")
ACTION(STATUS, "status", 0, NULL, NOWHERE, NULL, NAME_NEEDED, false,
       "show who holds each lock; exit status 0: held, 1: free (of several: one is), 69: unknown")
ACTION(LIST, "list", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, true,
       "list held and paused locks, or those matching GLOB")
ACTION(HISTORY, "history", 0, NULL, NOWHERE, NULL, NAME_NEEDED, true,
       "list the last runs, how long they took, and whether --ttl is enough; 1: none is known")

/* Without a command */
ACTION(ACQUIRE, "acquire", 0, NULL, NOWHERE, NULL, NAME_NEEDED, true,
       "acquire the lock, print its owner token, and leave it held")
ACTION(ATTACH, "attach", 0, attach_pid, AT(attach_pid), NULL, NAME_NEEDED, false,
       "hold the lock for the life of the calling script (--attach=PID: of that process)")
ACTION(EXTEND, "extend", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, true,
       "restart the lease with its first TTL or with --ttl, which may also shorten the lease; "
       "without NAME: the lease of the innermost lock that the caller runs under")
ACTION(RELEASE, "release", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, true,
       "release the lock if the owner token matches; without NAME: the innermost lock that the "
       "caller runs under")
ACTION(FORCE_RELEASE, "force-release", 0, NULL, NOWHERE, NULL, NAME_NEEDED, true,
       "take the lock away from its holder, and print the holder")
ACTION(PAUSE, "pause", 0, pause_time, AT(pause), "DURATION", NAME_NEEDED, true,
       "refuse the lock to all requests for this long; holders keep it; --message says why")
ACTION(RESUME, "resume", 0, NULL, NOWHERE, NULL, NAME_NEEDED, true, "end the pause of the lock")
ACTION(WAIT_UNTIL_FREE, "wait-until-free", 0, NULL, NOWHERE, NULL, NAME_NEEDED, false,
       "wait until the lock is free, without acquiring it; exit status 0: free; with -n a safe "
       "test for scripts")
ACTION(RAN_WITHIN, "ran-within", 0, duration, AT(ran_within), "DURATION", NAME_NEEDED, true,
       "exit status 0: the last success ended within that time; 1: it did not, or none is known")
ACTION(CURRENT, "current", 0, NULL, NOWHERE, NULL, NAME_REFUSED, false,
       "list the locks that this process runs under; exit status 1: none")
OPTION(ALL, "all", 0, flag, AT(all), NULL, NULL, BY(LIST), ON_RECORDS,
       "with --list: include free locks that remember a run")
ACTION(DOCTOR, "doctor", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, false,
       "check whether a lock can be trusted here, and if not, why")
ACTION(PRINT_CONFIG, "print-config", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, false,
       "print each setting as it applies to NAME, and its source")

/* Taking the lock */
OPTION(EXCLUSIVE, "exclusive", 'x', exclusive, NOWHERE, NULL, NULL, TAKING, ON_ANY,
       "one holder at a time (default)")
OPTION(SLOTS, "slots", 0, slots, AT(slots), NULL, "N", TAKING, (ON_RECORDS & ~ON_QUORUM) | MUST,
       "at most N holders, each with a DLOCK_SLOT of its own, 0 to N-1")
OPTION(HOLD_AT_LEAST, "hold-at-least", 0, duration, AT(hold_at_least), "0", "DURATION", TAKING,
       ON_RECORDS | MUST, "hold the lock at least this long, even if the command ends earlier")
OPTION(ONCE_PER, "once-per", 0, duration, AT(once_per), "0", "DURATION", TAKING, ON_RECORDS | MUST,
       "run only if the last success started at least this long ago (for a daily job 20h, as 24h "
       "may skip one that starts early); otherwise exit as if the lock were held (-E)")
OPTION(SCOPE, "scope", 0, scope, AT(scope), NULL, "TEXT", HELD, ON_ANY,
       "put TEXT and a colon before NAME in the key; without it the lock is global")
OPTION(OWNER, "owner", 0, owner, AT(owner), NULL, "TOKEN", TAKING | BY(EXTEND) | BY(RELEASE),
       ON_ANY, "owner token (default: a fresh UUID v4)")
OPTION(OWNER_FILE, "owner-file", 0, path, AT(owner_file), NULL, "FILE",
       BY(ACQUIRE) | BY(EXTEND) | BY(RELEASE) | SHOWN, ON_RECORDS,
       "file for the owner token: written by --acquire, which also prints the token; "
       "read by --extend and --release")

/* Lock store */
OPTION(REDIS, "redis", 'r', text, AT(redis), NULL, "URL", HELD, ON_SERVERS,
       "the Redis server, see below; three or more of them: a quorum")
OPTION(BACKEND, "backend", 0, choice, AT(backend), "auto", "auto|redis|file", HELD, ON_ANY,
       "auto: Redis if one is configured, else file; file: for this host and this user only")
OPTION(LOCK_DIR, "lock-dir", 0, path, AT(lock_dir), NULL, "DIR", HELD, ON_LOCK_DIR | ON_DIR,
       "directory of lock files, one for each user (default: /run/lock/dlock for root)")
OPTION(LOCK_FILE, "lock-file", 0, path, AT(lock_file), NULL, "PATH", HELD, ON_LOCK_FILE,
       "lock exactly this file, as flock(1) does; takes no NAME")
OPTION(NAME, "name", 0, NULL, NOWHERE, NULL, "TEXT", ANY & ~IN_FILES & ~BY(CURRENT), ON_LOCK_FILE,
       "with --lock-file: the lock's name in messages (default: PATH)")
OPTION(ON_DEGRADED, "on-degraded", 0, choice, AT(on_degraded), "warn",
       "warn|warn-throttled|proceed|fail", ANY & ~BY(CURRENT), ON_AUTO,
       "what to do if no Redis is configured")
OPTION(CACERT, "cacert", 0, path, AT(cacert), NULL, "FILE", HELD, ON_TLS,
       "trusted issuers of a TLS server's certificate (default: the system's)")
OPTION(CLIENT_CERT, "client-cert", 0, path, AT(client_cert), NULL, "FILE", HELD, ON_TLS,
       "client certificate for a TLS server that asks for one")
OPTION(CLIENT_KEY, "client-key", 0, path, AT(client_key), NULL, "FILE", HELD, ON_CERT,
       "its private key (default: in the file of --client-cert)")
OPTION(PASSWORD_FILE, "password-file", 0, path, AT(password_file), NULL, "FILE", HELD,
       ON_NO_PASSWORD, "file with the password for Redis; the user is in the URL")

/* While the command runs */
OPTION(ON_EXPIRE, "on-expire", 0, choice, AT(warn_on_expire), "stop", "stop|warn", WATCHING, ON_ANY,
       "what to do with the command when the lease ends or is lost")
OPTION(STOP_SIGNAL, "stop-signal", 0, stop_signal, AT(stop_signal), "TERM", "SIG", WATCHING,
       ON_STOP, "first signal to the command when the lease ends")
OPTION(GRACE, "grace", 0, duration, AT(grace), NULL, "DURATION", WATCHING, ON_STOP | ON_HEARTBEAT,
       "send --stop-signal this long before the lease ends, and KILL at its end; after a loss, "
       "KILL follows after this time (default: min(10s, ttl/10))")
OPTION(HEARTBEAT, "heartbeat", 0, flag, AT(heartbeat), NULL, NULL, BY(RUN) | SHOWN, ON_END,
       "each WATCHDOG=1 from the command (sd_notify) extends the lease by --ttl")

/* Messages */
OPTION(VERBOSE, "verbose", 'v', verbose, NOWHERE, NULL, NULL, ANY, ON_ANY,
       "print what is done; may be repeated")
OPTION(QUIET, "quiet", 'q', quiet, NOWHERE, NULL, NULL, ANY, ON_ANY,
       "only errors, the stop of the command, and the warning that no Redis is configured")
OPTION(JSON, "json", 0, flag, AT(json), NULL, NULL, ANY, ON_ANY,
       "print results and failures as JSON")
OPTION(SYSLOG, "syslog", 0, flag, AT(syslog), NULL, NULL, ANY, ON_ANY,
       "also send dlock's own messages to syslog(3), not the command's output or failure")
OPTION(REPORT, "report", 0, report, AT(report), NULL, "FILE", BY(RUN) | SHOWN, ON_ANY,
       "append one line of JSON about the run to this file")
OPTION(CONFIG, "config", 0, NULL, NOWHERE, NULL, "FILE", ANY & ~IN_FILES, ON_ANY,
       "read this file instead of the user's and the system's")
ACTION(VERSION, "version", 'V', NULL, NOWHERE, NULL, NAME_OPTIONAL, false,
       "print the version; with -v, the licences as well")
ACTION(USAGE, "usage", 'h', NULL, NOWHERE, NULL, NAME_OPTIONAL, false,
       "print what is used daily, on one screen")
ACTION(HELP, "help", 0, NULL, NOWHERE, NULL, NAME_OPTIONAL, false, "print all options")

/* Rarely needed */
OPTION(REMEMBER, "remember", 0, duration, AT(remember), "100d", "DURATION", TAKING, ON_RECORDS,
       "how long the lock remembers its runs")
OPTION(EXIT_STATUS, "exit-status", 0, status, AT(exit_status), NULL, "N", BY(RELEASE), ON_RECORDS,
       "with --release: the exit status to remember for what ran under the lock")
OPTION(HASH, "hash", 0, choice, AT(hash), NULL, "none|sha256|hmac-sha256", HELD, ON_ANY,
       "hash NAME in the key (default: none; hmac-sha256 with a secret)")
OPTION(SECRET_FILE, "secret-file", 0, path, AT(secret_file), NULL, "FILE", HELD, ON_ANY,
       "file with the secret of hmac-sha256, 16 bytes or more")
OPTION(PREFIX, "prefix", 0, prefix, AT(prefix), "dlock:", "TEXT", HELD, ON_ANY, "prefix of keys")
OPTION(FALLBACK, "fallback", 0, choice, AT(fallback_to_file), "off", "off|file", TAKING, ON_SERVERS,
       "when Redis is down, take a file lock")
OPTION(WAIT_REPLICAS, "wait-replicas", 0, replicas, AT(wait_replicas), "0", "N", TAKING, ON_SERVERS,
       "replicas that must have the lock before it counts")
OPTION(SENTINEL_PASSWORD_FILE, "sentinel-password-file", 0, path, AT(sentinel_password_file), NULL,
       "FILE", HELD, ON_SENTINEL, "file with PASSWORD or USER:PASSWORD for the Sentinels")
OPTION(CONNECT_TIMEOUT, "connect-timeout", 0, timeout, AT(connect_timeout), "3s", "DURATION", ANY,
       ON_SERVERS, "time limit for one attempt to reach Redis")
OPTION(RETRY_FOR, "retry-for", 0, duration, AT(retry_for), "10s", "DURATION", ANY, ON_SERVERS,
       "how long to retry an unreachable Redis before exit 69")
OPTION(CLOSE, "close", 'o', NULL, NOWHERE, NULL, NULL, BY(RUN), ON_ANY,
       "accepted for flock(1); the command never inherits the lock")
OPTION(NO_FORK, "no-fork", 'F', no_fork, NOWHERE, NULL, NULL, BY(RUN), ON_ANY, NULL)
OPTION(UNLOCK, "unlock", 'u', unlock, NOWHERE, NULL, NULL, BY(RUN), ON_ANY, NULL)
