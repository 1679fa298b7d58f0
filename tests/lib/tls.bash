# Certificates that openssl(1) makes, and a redis-server that speaks TLS.
# shellcheck shell=bash

# make_certificates: makes an authority and a certificate that it has signed, in $CERTS, once for a file of tests.
make_certificates() {
    CERTS=$BATS_FILE_TMPDIR/certs
    export CERTS
    mkdir -p "$CERTS"
    make_authority ca
    make_certificate server ca DNS:localhost,IP:127.0.0.1,IP:::1
    cat "$CERTS/server.pem" "$CERTS/server.key" >"$CERTS/both.pem"
    chmod 600 "$CERTS/both.pem"
}

make_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" && chmod 600 "$1"; }

# make_authority NAME: makes the key NAME.key and the certificate NAME.pem.
make_authority() {
    make_key "$CERTS/$1.key"
    openssl req -x509 -new -key "$CERTS/$1.key" -subj "/CN=$1" -days 7 -out "$CERTS/$1.pem"
}

# make_certificate NAME AUTHORITY NAMES [DAYS]: makes NAME.key and NAME.pem; NAMES as in subjectAltName.
make_certificate() { sign "$1" "$2" "subjectAltName=$3" "${4:-7}"; }

# sign NAME AUTHORITY EXTENSION DAYS: the same with any extension.
sign() {
    make_key "$CERTS/$1.key"
    openssl req -new -key "$CERTS/$1.key" -subj "/CN=$1" -out "$CERTS/$1.csr"
    openssl x509 -req -in "$CERTS/$1.csr" -CA "$CERTS/$2.pem" -CAkey "$CERTS/$2.key" -days "$4" \
        -extfile <(echo "$3") -out "$CERTS/$1.pem" 2>/dev/null
}

# start_tls_redis [ARGUMENTS...]: starts a server on $PORT with TLS, and on the Unix socket $T/redis.sock without.
# Tries again if another process has taken the port.
start_tls_redis() {
    for _ in 1 2 3 4 5; do
        PORT=$(free_port)
        # shellcheck disable=SC2034
        URL=rediss://localhost:$PORT
        ! start_redis redis --tls-port "$PORT" --bind 127.0.0.1 -::1 --tls-cert-file "$CERTS/server.pem" \
            --tls-key-file "$CERTS/server.key" --tls-ca-cert-file "$CERTS/ca.pem" --tls-auth-clients no "$@" || return 0
        cat "$T/redis.log" >&2
        stop_redis # perhaps it was only slow to start
    done
    return 1
}

# show_certificate NAME: the server shows this certificate from now on.
show_certificate() { redis config set tls-cert-file "$CERTS/$1.pem" tls-key-file "$CERTS/$1.key" | grep -q OK; }

# listener MODE [ARGUMENTS...]: starts fakes/listener.py; PORT is its port.
listener() {
    rm -f "$T/listener.port"
    python3 "$TESTS/fakes/listener.py" "$T/listener.port" "$@" >"$T/listener.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/listener.pid"
    echo $! >"$T/listener-$!.pid" # a test may start several, one after the other
    wait_until 10 test -s "$T/listener.port"
    PORT=$(cat "$T/listener.port")
}
