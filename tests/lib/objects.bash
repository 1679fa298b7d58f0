# Compiles the program with other compilers or flags than `make` does.
# Environment: CPPFLAGS, as configured.
# shellcheck shell=bash

# compile_objects FOLDER COMPILER FLAGS...: compiles each src/X/NAME.c to FOLDER/X_NAME.o.
compile_objects() {
    local folder=$1 sources source
    shift
    sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../src" && pwd)
    # shellcheck disable=SC2016
    find "$sources" -name '*.c' |
        while read -r source; do
            local object=${source#"$sources/"}
            object=${object%.c}.o
            printf '%s\0%s\0' "$source" "$folder/${object//\//_}"
        done | FLAGS="$* -std=gnu11 -D_GNU_SOURCE -pthread ${CPPFLAGS-} -I$sources" \
        xargs -0 -n 2 -P "$(nproc)" sh -c 'exec $FLAGS -c "$0" -o "$1"'
}
