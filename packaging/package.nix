# nix-build -E 'with import <nixpkgs> { }; callPackage packaging/package.nix { }' builds
# it from the checkout or the unpacked tarball around it.
{ lib, stdenv, autoreconfHook, pkg-config, hiredis, popt, libuuid, openssl, patchelf
, homepage ? null # there is no home page yet
}:

stdenv.mkDerivation {
  pname = "dlock";
  version = "0.9.0";
  src = lib.cleanSource ../.;
  nativeBuildInputs = [ autoreconfHook pkg-config patchelf ];
  buildInputs = [ hiredis popt libuuid openssl ];
  configureFlags = [ "--sysconfdir=/etc" "--disable-static-libs" ];
  enableParallelBuilding = true;
  # libssl is opened at run time, where TLS or hashed names are asked for.
  postFixup = ''
    patchelf --add-rpath ${lib.getLib openssl}/lib $out/bin/dlock
  '';
  meta = {
    description = "Run a command under a lock that a fleet of hosts shares";
    license = lib.licenses.mit;
    mainProgram = "dlock";
    platforms = lib.platforms.linux;
  } // lib.optionalAttrs (homepage != null) { inherit homepage; };
}
