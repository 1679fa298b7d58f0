#!/usr/bin/env bats
load ../lib/common
# The index of all its functions, which zsh makes once.
setup_file() {
    ! command -v zsh >/dev/null || zsh -fc 'autoload -U compinit && compinit -u -d "$1"' zsh "$BATS_FILE_TMPDIR/zcompdump"
}
setup() {
    common_setup
    SRC=$(realpath "$TESTS/..")
    LOCKS=$T/locks
    mkdir -m 700 "$LOCKS"
    ON_FILE=(--backend=file --lock-dir="$LOCKS")
    # A busy machine may need more than the 200 ms. $T/arguments has the arguments of timeout(1).
    printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>"%s/arguments"\n[ "$3" != 0.2 ] || { shift 3; set -- -s KILL 20 "$@"; }\nexec %s "$@"\n' \
        "$T" "$(command -v timeout)" >"$T/bin/timeout"
    chmod +x "$T/bin/timeout"
    # Ctrl-T prints the line, Ctrl-X Ctrl-A inserts all matches.
    cat >"$T/bashrc" <<RC
PS1='> ' HISTFILE=
. "$SRC/completions/dlock.bash"
complete -W 'alpha beta' words
_own() { COMPREPLY=("own\${#COMP_WORDS[@]}"); }; complete -F _own own
_line() { printf '%s\n' "\$READLINE_LINE" >\$AT_KEYS/line.new; mv \$AT_KEYS/line.new \$AT_KEYS/line; }
bind -x '"\C-t": _line'
bind '"\C-x\C-a": insert-completions'
PROMPT_COMMAND='touch \$AT_KEYS/ready'
RC
    cat >"$T/.zshrc" <<RC
PS1='> '
fpath=("$SRC/completions" \$fpath)
autoload -U compinit && compinit -C -d "$BATS_FILE_TMPDIR/zcompdump" && compdef _dlock dlock && autoload -U _dlock
_words() { compadd alpha beta }; compdef _words words
_own() { compadd own\$#words }; compdef _own own
_line() { print -r -- \$BUFFER >\$AT_KEYS/line.new; mv \$AT_KEYS/line.new \$AT_KEYS/line }
zle -N _line
zle -C all complete-word _generic
zstyle ':completion:*' completer _complete
zstyle ':completion:all:*' completer _all_matches _complete
zstyle ':completion:all:*' insert true
bindkey -e
bindkey '^T' _line
bindkey '^X^A' all
precmd() { touch \$AT_KEYS/ready }
RC
}

TAB=$'\t' ALL=$'\x18\x01'

# Prints the long options that --help shows, one a line.
shown_options() { dlock --help | grep -oE '^ +(-[A-Za-z], )?--[a-z-]+' | grep -oE '[a-z][a-z-]+$'; }

# keys SHELL KEYS: prints the line after these keys in the real shell, on a terminal.
keys() {
    [ -e "$T/$1/ask" ] || start_shell "$1"
    if ! printf %s "$2" | timeout 60 tee "$T/$1/ask" >/dev/null || ! timeout 60 cat "$T/$1/answer"; then
        cat "$T/$1.log" >&2
        return 1
    fi
}

start_shell() {
    local command=(bash --noprofile --rcfile "$T/bashrc" -i)
    [ "$1" = bash ] || command=(zsh -d -i)
    mkdir "$T/$1"
    mkfifo "$T/$1/ask" "$T/$1/answer"
    ZDOTDIR=$T AT_KEYS=$T/$1 python3 "$TESTS/helpers/press_keys.py" "$T/$1" "${command[@]}" >"$T/$1.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/$1.pid"
}

# in_fish LINE...: prints what fish offers for the last word of each, one a line.
in_fish() {
    printf '%s\n' "$@" |
        fish --no-config -c "source '$SRC/completions/dlock.fish'; while read -l line; complete -C \$line; end" | cut -f 1
}

# shells: prints the shells that are installed.
shells() {
    local shell
    for shell in bash zsh fish; do
        ! command -v "$shell" >/dev/null || echo "$shell"
    done
}

# offered SHELL LINE: prints the words that are offered after LINE, which ends in a
# blank or in the part of a word, sorted, one a line, as a shell would read them.
offered() {
    if [ "$1" = fish ]; then
        in_fish "$2"
    else
        # The shell has quoted the words, so it must read them again.
        LINE=$(keys "$1" "$2$ALL") BEFORE=${2% *} "$1" -fc 'eval "printf \"%s\\n\" ${LINE#"$BEFORE"}"'
    fi | sort
}

# held NAME...: makes locks that are held by no process.
held() {
    local name
    for name; do
        dlock "${AT[@]}" --acquire -- "$name" >/dev/null
    done
}

lines() { printf '%s\n' "$@" | sort; }

@test "every option of --help is completed in bash, zsh and fish" {
    local option bash zsh fish
    bash=$(<"$SRC/completions/dlock.bash") zsh=$(<"$SRC/completions/_dlock") fish=$(<"$SRC/completions/dlock.fish")
    for option in $(shown_options); do
        [[ $bash =~ --$option[^a-z-] ]] || { echo "bash: $option"; false; }
        [[ $zsh =~ --$option[^a-z-] ]] || { echo "zsh: $option"; false; }
        [[ $fish =~ -l\ $option[^a-z-] ]] || { echo "fish: $option"; false; }
    done
    # The values that can be chosen are offered too.
    local choices
    while IFS='=' read -r option choices; do
        choices=${choices//|/ }
        [[ $bash == *"$option) words='$choices'"* && $zsh == *"$option="*"($choices)'"* && $fish == *"-l ${option#--} -x -a '$choices'"* ]] ||
            { echo "$option: $choices"; false; }
    done < <(dlock --help | grep -oE -- '--[a-z-]+=[a-z0-9-]+(\|[a-z0-9-]+)+')
}

# complete_line WORD...: prints what bash offers for the last word.
complete_line() {
    bash --norc -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        f=$(complete -p dlock | sed "s/.*-F \([^ ]*\).*/\1/"); "$f" dlock "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$SRC/completions/dlock.bash" "$@"
}

@test "bash completes options, their values, and the command's own arguments" {
    run complete_line dlock --stop
    [[ $output == *--stop-signal* ]]
    run complete_line dlock --backend ''
    [[ $output == *redis* && $output == *file* ]]
    run complete_line dlock --redis valk
    equals "$output" $'valkey://\nvalkeys://'
    run complete_line dlock -n job --on-e
    [[ $output == *--on-expire* ]]
    run complete_line dlock --tree job printen
    [[ $output == *printenv* ]]
    # An empty word does not offer thousands of words.
    run complete_line dlock job ''
    equals "$output" ''
    run complete_line dlock job -- ''
    equals "$output" ''
}

@test "bash, zsh and fish complete no command after an action" {
    local action lines=()
    mkdir "$T/empty"
    cd "$T/empty" || return
    for action in --acquire --attach --attach=1 --extend --release --force-release --status --wait-until-free --list --current --doctor --print-config; do
        equals "$(complete_line dlock "$action" job printen)" ''
        equals "$(complete_line dlock job "$action" -- printen)" ''
        equals "$(complete_line dlock "$action" -- job printen)" ''
        [[ $(complete_line dlock "$action" job --red) == *--redis=* ]]
        grep -qE "actions=.*[|']$(expr "$action" : '--\([a-z-]*\)')[|']" "$SRC/completions/_dlock"
        lines+=("dlock $action job printen")
    done
    command -v fish >/dev/null || skip 'no fish'
    equals "$(in_fish "${lines[@]}")" ''
    [[ $(in_fish 'dlock --shared job printen') == *printenv* ]]
}

@test "the real shells offer values, and units after a number" {
    local shell
    for shell in $(shells); do
        equals "$(offered "$shell" 'dlock --backend ')" "$(lines auto redis file)"
        equals "$(offered "$shell" 'dlock -nw 10')" "$(lines 10ms 10s 10m 10h 10d)"
        equals "$(offered "$shell" 'dlock --stop-signal US')" "$(lines USR1 USR2)"
        [ "$shell" = fish ] || equals "$(keys "$shell" "dlock --on-expire=w$TAB")" 'dlock --on-expire=warn '
        [ "$shell" = fish ] || equals "$(keys "$shell" "dlock --redis=redis:$TAB")" 'dlock --redis=redis://'
    done
}

@test "after --version, -v is completed, which adds the licences" {
    local shell
    for shell in $(shells); do
        equals "$(offered "$shell" 'dlock --version --verb')" --verbose
        equals "$(offered "$shell" 'dlock -V --verb')" --verbose
    done
}

@test "the real shells complete a command as they do without dlock before it" {
    local shell before
    mkdir "$T/a" && touch "$T/a/file"
    for shell in $(shells); do
        if [ "$shell" = fish ]; then
            equals "$(in_fish 'dlock --tree -- job printen')" printenv
            equals "$(in_fish "dlock job -- cat $T/a/")" "$T/a/file"
            continue
        fi
        for before in 'job' 'job --' '-- job' '-m why job' '-nr unix:///s job' 'job -n --redis=redis://x --' 'a:b'; do
            equals "$(keys "$shell" "dlock $before words al$TAB")" "dlock $before words alpha "
        done
        equals "$(keys "$shell" "dlock job own 'a b' o$TAB")" "dlock job own 'a b' own3 "
        equals "$(keys "$shell" "dlock job cat $T/a/$TAB")" "dlock job cat $T/a/file "
    done
}

@test "with --lock-file there is no NAME: the first word is completed as a command" {
    local shell before
    for shell in $(shells); do
        for before in '--lock-file=/f' '--lock-file /f -n' '--lock-file=/f --name=job --' '--name job --lock-file=/f'; do
            if [ "$shell" = fish ]; then
                equals "$(in_fish "dlock $before printen")" printenv
            else
                equals "$(keys "$shell" "dlock $before words al$TAB")" "dlock $before words alpha "
            fi
        done
    done
}

@test "bash completes the same with bash-completion as without" {
    local package=/usr/share/bash-completion/bash_completion
    [ -e "$package" ] || skip 'no bash-completion'
    sed -i "1i . $package" "$T/bashrc"
    AT=("${ON_FILE[@]}")
    held deploy:production
    equals "$(keys bash "dlock job -- words al$TAB")" 'dlock job -- words alpha '
    equals "$(keys bash "dlock a:b -n own x y$TAB")" 'dlock a:b -n own x own3 '
    equals "$(keys bash "dlock ${AT[*]} deploy:pr$TAB")" "dlock ${AT[*]} deploy:production "
    equals "$(keys bash "dlock --owner-file ~/.zsh$TAB")" 'dlock --owner-file ~/.zsh'
}

@test "bash completes the same if neither = nor : separates words" {
    echo 'set -u; COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]/}' >>"$T/bashrc"
    AT=("${ON_FILE[@]}")
    held deploy:production
    equals "$(keys bash "dlock ${AT[*]} deploy:pr$TAB")" "dlock ${AT[*]} deploy:production "
    equals "$(keys bash "dlock --backend=re$TAB")" 'dlock --backend=redis '
    equals "$(keys bash "dlock --redis=redis:$TAB")" 'dlock --redis=redis://'
    equals "$(keys bash "dlock --report=$T/zcomp$TAB")" "dlock --report=$T/zcomp"
    equals "$(keys bash "dlock --report=$T/bashr$TAB")" "dlock --report=$T/bashrc "
    equals "$(keys bash "dlock --lock-dir=$T/loc$TAB")" "dlock --lock-dir=$T/locks "
}

@test "names of locks that are held or remember a run are offered for a NAME, and nowhere else" {
    local shell place
    export DLOCK_ON_DEGRADED=warn-throttled
    AT=("${ON_FILE[@]}")
    held deploy:prod other
    dlock "${AT[@]}" deploy:pre -- true
    for shell in $(shells); do
        for place in --status '--status other' '--status -- other' '-n --ttl=1m' --force-release --list -- "-c true"; do
            equals "$(offered "$shell" "dlock ${AT[*]} $place d")" "$(lines deploy:pre deploy:prod)"
        done
        equals "$(offered "$shell" "dlock ${AT[*]} ")" "$(lines deploy:pre deploy:prod other)"
        for place in --current --owner "--lock-file=$T/x" "--lock-dir $T/none" --prefix=none '--release other' '--prefix=`touch ran`'; do
            not grep other <<<"$(offered "$shell" "dlock ${AT[*]} $place ")"
        done
        [ "$shell" != fish ] || continue
        equals "$(keys "$shell" "dlock ${AT[*]} deploy:pro$TAB")" "dlock ${AT[*]} deploy:prod "
        equals "$(keys "$shell" "dlock ${AT[*]} deploy\\:pro$TAB")" "dlock ${AT[*]} deploy:prod "
    done
    [ ! -e ran ]
    [ ! -e "$T/none" ]
    # Completion does not use up a throttled warning that the user has not seen yet.
    for shell in $(shells); do
        equals "$(offered "$shell" "dlock --lock-dir=$LOCKS --status o")" other
    done
    [[ $(dlock --lock-dir="$LOCKS" free -- true 2>&1) == *'no Redis'* ]]
}

@test "the names offered are those on the server and with the prefix given on the line" {
    local shell line
    start_redis
    export SERVER=unix://$T/redis.sock
    AT=(--redis="$SERVER")
    held one
    AT+=(--prefix='my: a b:')
    held two
    for shell in $(shells); do
        equals "$(offered "$shell" "dlock --redis=unix://$T/redis.sock --status ")" one
        equals "$(offered "$shell" "dlock -nr unix://$T/redis.sock ")" one
        equals "$(offered "$shell" "dlock -nrunix://$T/redis.sock ")" one
        equals "$(offered "$shell" 'dlock -r $T/redis.sock ')" ''
        for line in "--prefix 'my: a b:'" "--prefix=my:\\ a\\ b:" "--prefix=\"my: a b:\""; do
            equals "$(offered "$shell" "dlock -r unix://$T/redis.sock $line ")" two
        done
        equals "$(offered "$shell" 'dlock -r $SERVER ')" one
    done
}

@test "names chosen by others run nothing, do not disturb the terminal, and are completed unchanged" {
    local shell name quote line
    local names=('a b' "it's" 'say "hi"' '$(touch ran)' '`touch ran`' ';touch ran' 'a*[b]?' 'back\slash\' '!1' '~root' '#no' '{a,b}' 'é:ü' '=x' '&' '\u001b')
    local refused=($'new\nline' $'\e]0;title\a' $'\x9b2J' $'\xc2\x9b2J' $'tab\there' $'\xe2\x80\xaereversed' $'\xd8\x9cmark' $'bad\xff' -rf
        9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08)
    start_redis
    for name in "${names[@]}" "${refused[@]}"; do
        redis set "dlock:$name" token px 600000 >/dev/null
    done
    cd "$T" || return
    for shell in $(shells); do
        equals "$(offered "$shell" "dlock -r unix://$T/redis.sock --status ")" "$(lines "${names[@]}")"
        [ "$shell" != fish ] || continue
        # What the terminal has shown.
        not grep -q 'title\|reversed\|line' "$T/$shell/screen"
    done
    # Completion works inside open quotation marks too.
    for shell in $(shells); do
        [ "$shell" != fish ] || continue
        for name in "a b" "it's" 'say "hi"' '$(touch ran)' '`touch ran`' 'a*[b]?' 'back\slash\'; do
            for quote in '"' "'"; do
                [[ $name != "it's" || $quote = '"' ]] && [[ ${name:0:1} != [\$\`] || $quote = "'" ]] || continue
                line=$(keys "$shell" "dlock -r unix://$T/redis.sock $quote${name:0:2}$TAB")
                equals "$(LINE=$line "$shell" -fc 'eval "printf %s ${LINE#* * * }"')" "$name"
            done
        done
    done
    [ ! -e ran ]
}

@test "without a server there are no names, no message, and no long wait" {
    local shell server start
    rm "$T/bin/timeout"
    fake_redis silent
    for shell in $(shells); do
        [ "$shell" = fish ] || keys "$shell" '' # it has started
        for server in "unix://$T/fake.sock" "unix://$T/none.sock" not-a-url; do
            start=$(now)
            equals "$(offered "$shell" "dlock -r $server --status ")" ''
            within 2000 "$start"
            [ "$shell" != fish ] || continue
            # Prints what follows the typed words and what redraws the line.
            not grep -qiE 'killed|terminated|dlock: |error' "$T/$shell/screen"
        done
    done
}

@test "a password on the line appears in no other program's arguments and in no message" {
    local shell
    printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>"%s/arguments"\nexec /usr/bin/timeout "$@"\n' "$T" >"$T/bin/timeout"
    chmod +x "$T/bin/timeout"
    start_redis redis --requirepass sesame
    AT=(--redis="unix://:sesame@$T/redis.sock")
    held mine
    for shell in $(shells); do
        rm -f "$T/arguments"
        equals "$(offered "$shell" "dlock -r unix://:sesame@$T/redis.sock --status ")" mine
        equals "$(grep dlock "$T/arguments" | grep -v "$T")" '-s KILL 0.2 dlock --list --all --json'
        not grep -q sesame "$T/arguments"
    done
}
