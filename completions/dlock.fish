# fish completion for dlock(1).

# Reads the words before the cursor. Prints where the command begins (one past them
# where the word at the cursor begins it), or 0: a value, an option or NAME stands
# there, or there is no command: with an action, or with -c. In the lines behind:
#   name              NAME stands at the cursor
#   only_words        behind "--", where what begins with "-" is a name, too
#   is_pattern        with --list
#   unlisted          no one can tell which locks are held
#   DLOCK_...=VALUE   where the locks are, as variables of the environment
function __dlock_read
    set -l words (commandline -opc)
    set -l name ''
    set -l only_words ''
    set -l value ''
    set -l no_command ''
    set -l many ''
    set -l facts
    set -l i 2
    while test $i -le (count $words)
        set -l word $words[$i]
        if test -n "$value"
            set -a facts (__dlock_fact $value (string replace -r '^~/' $HOME/ -- $word))
            test "$value" = --lock-file; and set name -
            set value ''
        else if test -n "$only_words" -o "$word" = -
            test -n "$name" -a -z "$many"; and break
            set name $word
        else
            switch $word
                case --status
                    set many yes
                case --list
                    set -a facts is_pattern
                case --current
                    set -a facts unlisted
            end
            switch $word
                case --
                    set only_words yes
                case '--command=*' '--attach=*' '--pause=*' '--ran-within=*' --acquire --attach --extend --release --force-release --resume --status --wait-until-free --list --history --current --doctor --print-config
                    set no_command yes
                case '--*=*'
                    string match -q -- '--lock-file=*' $word; and set name -
                    set -a facts (__dlock_fact (string split -m 1 = -- $word))
                case --name
                    set value $word
                case '--n*' --all --exclusive --shared --tree --heartbeat --close --verbose --quiet --json --version --help --usage
                case '--*'
                    set value $word
                    contains -- $word --command --pause; and set no_command yes
                case '-*'
                    # The first letter that takes a value takes the rest of the word, else the next word.
                    set value (string replace -r '^-[^wEtrcm]*' '' -- $word)
                    string match -q 'c*' -- $value; and set no_command yes
                    string match -qr '^r.' -- $value; and set -a facts (__dlock_fact -r (string sub -s 2 -- $value))
                    string match -qr '^.$' -- $value; and set value -$value; or set value ''
                case '*'
                    test -n "$name" -a -z "$many"; and break
                    set name $word
            end
        end
        set i (math $i + 1)
    end
    if test -z "$name" -o -n "$value" -o -n "$no_command"
        echo 0
    else
        echo $i
    end
    test -z "$value" -a \( -z "$name" -o -n "$many" \); and echo name
    test -n "$only_words"; and echo only_words
    test -n "$facts"; and printf '%s\n' $facts
end

function __dlock_command_at
    __dlock_read | string match -r '^\d+$'
end

# Prints what the option $argv[1] with this value tells of where the locks are.
# Nothing in the value is run: of expansions only a variable is followed that is
# the whole of it.
function __dlock_fact
    set -l option (string replace -r '^-r$' -- --redis $argv[1])
    set -l value $argv[2]
    switch $option
        case --backend --config --lock-dir --scope --prefix --redis --cacert --client-cert --client-key --password-file --sentinel-password-file
            set -l variable (string match -r '^\$([A-Za-z_][A-Za-z_0-9]*)$' -- $value)
            if set -q variable[2]
                set -l name $variable[2]
                set value "$$name"
            else if string match -qr '[$(\n]' -- $value
                echo unlisted
                return
            end
            # A directory that is not there would be made.
            test $option = --lock-dir -a ! -d "$value"; and echo unlisted
            echo DLOCK_(string upper -- (string replace -a - _ -- (string sub -s 3 -- $option)))=$value
        case --lock-file
            echo unlisted
    end
end

# Prints the names of the locks that are held or remember a run, one a line. What is on the line
# goes by the environment, which others cannot read: there may be a password in
# it. Of the JSON only names are taken that dlock takes: an escape other than of
# a quotation mark or a backslash stands for a control character, or for what is
# no UTF-8. Nor are those of use that reorder the text around them, or a digest.
function __dlock_names
    set -l facts (__dlock_read)
    contains -- unlisted $facts; and return
    set -l reorders (printf '\330\234|\342\200[\216\217\250-\256]|\342\201[\246-\251]' | string collect)
    # That no Redis is configured is said to whoever reads it.
    set -lx DLOCK_ON_DEGRADED proceed
    set -l servers
    for fact in (string match -r '^DLOCK_.*' -- $facts)
        set -l pair (string split -m 1 = -- $fact)
        if test $pair[1] = DLOCK_REDIS
            set -a servers $pair[2]
        else
            set -fx $pair[1] $pair[2]
        end
    end
    set -q servers[1]; and set -fx DLOCK_REDIS (string join ' ' -- $servers)
    set -l unwanted '^$'
    contains -- only_words $facts; or set unwanted '^-'
    contains -- is_pattern $facts; and set unwanted "$unwanted|[][\\\\]"
    set -l program (commandline -opc)[1]
    timeout -s KILL 0.2 $program --list --all --json </dev/null 2>/dev/null |
        LC_ALL=C command sed -nE 's/^\{"key":"(([^"\\\\]|\\\\["\\\\])*)",.*/\1/p' 2>/dev/null |
        LC_ALL=C command sed -E -e "/$reorders/d" -e '/^[0-9a-f]{64}$/d' -e 's/\\\\(["\\\\])/\1/g' 2>/dev/null |
        string match -vr -- $unwanted
end

function __dlock_wants_name
    contains name (__dlock_read)
end

# Prints the number at the cursor with each unit.
function __dlock_durations
    set -l number (string replace -r '^-.*=|^-[wt]' '' -- (commandline -ct))
    string match -qr '\d$' -- $number; and printf '%s\n' $number{ms,s,m,h,d}
end

# Whether the word at the cursor may be an option of dlock.
function __dlock_takes_options
    set -l words (commandline -opc)
    set -l at (__dlock_command_at)
    test $at -eq 0 -o $at -gt (count $words); and not contains -- -- $words
end

function __dlock_in_command
    test (__dlock_command_at) -gt 0
end

function __dlock_complete_command
    set -l words (commandline -opc)
    set -l at (__dlock_command_at)
    set -l current (commandline -ct)
    if test $at -gt (count $words)
        string match -q -- '-*' "$current"; or complete -C "$current"
    else
        complete -C (string join ' ' -- (string escape -- $words[$at..-1]) "$current")
    end
end

complete -c dlock -f
complete -c dlock -n __dlock_in_command -a '(__dlock_complete_command)'
complete -c dlock -n __dlock_wants_name -a '(__dlock_names)' -d 'Held lock'

complete -c dlock -n __dlock_takes_options -l acquire -d 'Acquire the lock and leave it held'
complete -c dlock -n __dlock_takes_options -l attach -d 'Hold the lock for the life of the calling script'
complete -c dlock -n __dlock_takes_options -l extend -d 'Extend the lease'
complete -c dlock -n __dlock_takes_options -l release -d 'Release the lock'
complete -c dlock -n __dlock_takes_options -l exit-status -x -d 'With --release: how what ran under the lock ended'
complete -c dlock -n __dlock_takes_options -l force-release -d 'Take the lock away from its holder'
complete -c dlock -n __dlock_takes_options -l pause -x -a '(__dlock_durations)' -d 'Refuse the lock to all requests for this long'
complete -c dlock -n __dlock_takes_options -l resume -d 'End the pause of the lock'
complete -c dlock -n __dlock_takes_options -l status -d 'Show who holds the lock'
complete -c dlock -n __dlock_takes_options -l wait-until-free -d 'Wait until the lock is free, without acquiring it'
complete -c dlock -n __dlock_takes_options -l list -d 'List the held and paused locks'
complete -c dlock -n __dlock_takes_options -l all -d 'With --list: include free locks that remember a run'
complete -c dlock -n __dlock_takes_options -l history -d 'List the last runs, and how long they took'
complete -c dlock -n __dlock_takes_options -l ran-within -x -a '(__dlock_durations)' -d 'Whether the last success ended within that time'
complete -c dlock -n __dlock_takes_options -l current -d 'List the locks that this process runs under'
complete -c dlock -n __dlock_takes_options -l doctor -d 'Check whether a lock can be trusted here'
complete -c dlock -n __dlock_takes_options -l print-config -d 'Print each setting, and its source'
complete -c dlock -n __dlock_takes_options -s x -l exclusive -d 'One holder at a time (default)'
complete -c dlock -n __dlock_takes_options -s s -l shared -d 'Any number of shared holders'
complete -c dlock -n __dlock_takes_options -l slots -x -d 'At most N holders'
complete -c dlock -n __dlock_takes_options -s n -l nonblock -d 'Do not wait for the lock'
complete -c dlock -n __dlock_takes_options -s w -l wait -x -a '(__dlock_durations)' -d 'Wait at most this long'
complete -c dlock -n __dlock_takes_options -s E -l conflict-exit-code -x -d 'Exit status if another holds the lock'
complete -c dlock -n __dlock_takes_options -s t -l ttl -x -a '(__dlock_durations)' -d 'How long the lock holds; the command is killed at its end'
complete -c dlock -n __dlock_takes_options -l hold-at-least -x -a '(__dlock_durations)' -d 'Hold the lock at least this long'
complete -c dlock -n __dlock_takes_options -s m -l message -x -d 'Why, shown to waiters'
complete -c dlock -n __dlock_takes_options -l once-per -x -a '(__dlock_durations)' -d 'Do not run if the last success started within that time'
complete -c dlock -n __dlock_takes_options -l remember -x -a '(__dlock_durations)' -d 'How long the lock remembers its runs'
complete -c dlock -n __dlock_takes_options -l owner -x -d 'Owner token'
complete -c dlock -n __dlock_takes_options -l owner-file -r -F -d 'File for the owner token'
complete -c dlock -n __dlock_takes_options -l hash -x -a 'none sha256 hmac-sha256' -d 'Hash NAME in the key'
complete -c dlock -n __dlock_takes_options -l secret-file -r -F -d 'File with the secret of hmac-sha256'
complete -c dlock -n __dlock_takes_options -l scope -x -d 'Put TEXT and a colon before NAME in the key'
complete -c dlock -n __dlock_takes_options -l prefix -x -d 'Prefix of keys'
complete -c dlock -n __dlock_takes_options -s r -l redis -x -a 'redis:// rediss:// valkey:// valkeys:// unix:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster://' -d 'The Redis server'
complete -c dlock -n __dlock_takes_options -l backend -x -a 'auto redis file' -d 'Where locks are stored'
complete -c dlock -n __dlock_takes_options -l lock-dir -x -a '(__fish_complete_directories)' -d 'Directory of lock files'
complete -c dlock -n __dlock_takes_options -l lock-file -r -F -d 'Lock exactly this file, as flock(1) does'
complete -c dlock -n __dlock_takes_options -l name -x -d 'With --lock-file: the lock\'s name in messages'
complete -c dlock -n __dlock_takes_options -l on-degraded -x -a 'warn warn-throttled proceed fail' -d 'What to do if no Redis is configured'
complete -c dlock -n __dlock_takes_options -l fallback -x -a 'off file' -d 'When Redis is down, take a file lock'
complete -c dlock -n __dlock_takes_options -l cacert -r -F -d 'Trusted issuers of a TLS server\'s certificate'
complete -c dlock -n __dlock_takes_options -l client-cert -r -F -d 'Client certificate for a TLS server'
complete -c dlock -n __dlock_takes_options -l client-key -r -F -d 'Its private key'
complete -c dlock -n __dlock_takes_options -l password-file -r -F -d 'File with the password for Redis'
complete -c dlock -n __dlock_takes_options -l sentinel-password-file -r -F -d 'File with the password for the Sentinels'
complete -c dlock -n __dlock_takes_options -l wait-replicas -x -d 'Replicas that must have the lock before it counts'
complete -c dlock -n __dlock_takes_options -l connect-timeout -x -a '(__dlock_durations)' -d 'Time limit for one attempt to reach Redis'
complete -c dlock -n __dlock_takes_options -l retry-for -x -a '(__dlock_durations)' -d 'How long to retry an unreachable Redis'
complete -c dlock -n __dlock_takes_options -l on-expire -x -a 'stop warn' -d 'What to do with the command when the lease ends or is lost'
complete -c dlock -n __dlock_takes_options -l stop-signal -x -a 'HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ PROF VTALRM WINCH IO PWR SYS' -d 'First signal to the command when the lease ends'
complete -c dlock -n __dlock_takes_options -l grace -x -a '(__dlock_durations)' -d 'How long before the end to send it'
complete -c dlock -n __dlock_takes_options -l tree -d 'Keep the lock until every descendant of the command has ended'
complete -c dlock -n __dlock_takes_options -l heartbeat -d 'Each WATCHDOG=1 from the command extends the lease'
complete -c dlock -n __dlock_takes_options -s o -l close -d 'Accepted for flock(1); the command never inherits the lock'
complete -c dlock -n __dlock_takes_options -s c -l command -x -d 'Run this with $SHELL -c'
complete -c dlock -n __dlock_takes_options -s v -l verbose -d 'Print what is done'
complete -c dlock -n __dlock_takes_options -s q -l quiet -d 'Print only errors'
complete -c dlock -n __dlock_takes_options -l json -d 'Print results and failures as JSON'
complete -c dlock -n __dlock_takes_options -l syslog -d 'Also send messages of dlock to syslog'
complete -c dlock -n __dlock_takes_options -l report -r -F -d 'Append one line of JSON about the run'
complete -c dlock -n __dlock_takes_options -l config -r -F -d 'Read this file instead of the user\'s and the system\'s'
complete -c dlock -n __dlock_takes_options -s V -l version -d 'Print the version; with -v, the licences as well'
complete -c dlock -n __dlock_takes_options -s h -l usage -d 'Print what is used daily, on one screen'
complete -c dlock -n __dlock_takes_options -l help -d 'Print all options'
