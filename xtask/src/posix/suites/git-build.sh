# Builds git from Debian's source, with the programs of its tests: git-build.sh FOLDER
set -eu
mkdir -p "$1/lists"
cd "$1"
. /etc/os-release
echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME main" >sources.list
apt="apt-get --quiet -o Dir::Etc::sourcelist=$1/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$1/lists -o APT::Sandbox::User=root"
$apt update
$apt source --download-only git
mkdir source
tar --extract --file git_*.orig.tar.xz --directory source --strip-components 1
make -C source -j"$(nproc)" NO_TCLTK=1 NO_GETTEXT=1 NO_CURL=1 NO_EXPAT=1 CFLAGS=-O1 all
touch built
