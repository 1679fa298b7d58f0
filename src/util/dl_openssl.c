#include "util/dl_openssl.h"

#ifdef STATIC_BINARY

#define FUNCTION(name) .name = name,
static const struct openssl functions = {OPENSSL_CRYPTO_FUNCTIONS(FUNCTION)
                                             OPENSSL_SSL_FUNCTIONS(FUNCTION)};

static bool load(enum openssl_part part, const char *what, struct errmsg *why)
{
    (void)part;
    (void)what;
    (void)why;
    return true;
}

#else

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRYPTO_SONAME "libcrypto.so.3"
#define SSL_SONAME "libssl.so.3"

/* Tells packaging tools about the libraries that the dynamic section does not name. See "ELF Notes
 * for dlopen metadata" by the UAPI group. readelf -p .note.dlopen prints the note. */
#define NOTE_JSON                                                             \
    "[{\"feature\":\"tls\",\"description\":\"TLS to Redis "                   \
    "(rediss://)\",\"priority\":\"recommended\","                             \
    "\"soname\":[\"" SSL_SONAME "\"]},"                                       \
    "{\"feature\":\"crypto\",\"description\":\"TLS to Redis and hashed lock " \
    "names\",\"priority\":\"recommended\","                                   \
    "\"soname\":[\"" CRYPTO_SONAME "\"]}]"

struct dlopen_note {
    uint32_t name_size, json_size, type;
    char name[4];
    char json[(sizeof NOTE_JSON + 3) & ~(size_t)3]; /* padded to whole words */
};
__attribute__((used, aligned(4),
               section(".note.dlopen"))) static const struct dlopen_note dlopen_note = {
    .name_size = sizeof "FDO",
    .json_size = sizeof NOTE_JSON,
    .type = 0x407c0c0a,
    .name = "FDO",
    .json = NOTE_JSON,
};

struct function {
    const char *name;
    size_t at; /* offset in struct openssl */
};
#define FUNCTION(name) {#name, offsetof(struct openssl, name)},
static const struct function crypto_functions[] = {OPENSSL_CRYPTO_FUNCTIONS(FUNCTION)};
static const struct function ssl_functions[] = {OPENSSL_SSL_FUNCTIONS(FUNCTION)};

/* The functions that have been loaded. They are shared by the whole process, because it loads each
 * library only once. */
static struct openssl functions;

static bool missing(const char *what, struct errmsg *why)
{
    const char *error = dlerror();
    errmsg_set(why,
               "%s needs OpenSSL 3, in the package libssl3 (Debian, Ubuntu, Alpine) or "
               "openssl-libs (Fedora, RHEL): %s",
               what, error != NULL ? error : "the library cannot be opened");
    return false;
}

static bool open_library(const char *soname, const char *what, const struct function *list,
                         size_t count, struct errmsg *why)
{
    void *library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return missing(what, why);
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, list[i].name);
        if (symbol == NULL)
            return missing(what, why);
        memcpy((char *)&functions + list[i].at, &symbol, sizeof symbol);
    }
    return true;
}

static bool load(enum openssl_part part, const char *what, struct errmsg *why)
{
    return part == OPENSSL_CRYPTO
               ? open_library(CRYPTO_SONAME, what, crypto_functions,
                              sizeof crypto_functions / sizeof *crypto_functions, why)
               : open_library(SSL_SONAME, what, ssl_functions,
                              sizeof ssl_functions / sizeof *ssl_functions, why);
}

#endif

const struct openssl *openssl(void)
{
    return &functions;
}

bool openssl_open(enum openssl_part part, struct errmsg *why)
{
    static bool is_open[2];
    const char *what = part == OPENSSL_TLS ? "TLS" : "a hashed name";

    if (!is_open[OPENSSL_CRYPTO]) {
        if (!load(OPENSSL_CRYPTO, what, why))
            return false;
        /* Skips OpenSSL's clean-up at exit, because it only takes time, and because a thread that
         * looks up a host name may still be running at exit. OpenSSL would crash later if it had
         * no memory for its default context, so dlock makes it create the context now. */
        if (functions.OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) != 1 ||
            functions.OSSL_LIB_CTX_get0_global_default() == NULL) {
            errmsg_set(why, "%s needs OpenSSL 3, but OpenSSL failed to initialize", what);
            return false;
        }
        is_open[OPENSSL_CRYPTO] = true;
    }

    if (part == OPENSSL_TLS && !is_open[OPENSSL_TLS])
        is_open[OPENSSL_TLS] = load(OPENSSL_TLS, what, why);
    return is_open[part];
}
