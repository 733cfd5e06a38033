# shellcheck shell=bash
# Sourced by the other scripts: ensure_venv EXTRAS makes .venv beside pyproject.toml and installs the project into it,
# with those extras.  It does nothing when neither pyproject.toml nor the place has changed since.

_venv_fail() {
    echo "killpool: $*" >&2
    return 1
}

ensure_venv() {
    local extras="${1:-}" root venv python stamp wanted
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)" || return 1
    venv="$root/.venv"
    python="$venv/bin/python"
    stamp="$venv/.killpool-stamp-${extras:-none}"
    # The place is in the stamp because a venv's scripts and an editable install name it: a copy elsewhere is stale.
    wanted="$root $(sha256sum <"$root/pyproject.toml")"
    if [ -x "$python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    if [ ! -w "$root" ] || { [ -e "$venv" ] && [ ! -w "$venv" ]; }; then
        _venv_fail "$venv cannot be written by $(id -un); use a clone of your own" || return 1
    fi
    if ! "$python" -m pip --version >/dev/null 2>&1 || ! cmp -s "$venv/.killpool-root" <(printf '%s' "$root"); then
        rm -rf "$venv" # half made, moved, or of a Python that is gone
        _make_venv "$venv" || return 1
        printf '%s' "$root" >"$venv/.killpool-root"
    fi
    if ! "$python" -m pip install --quiet --disable-pip-version-check --editable "$root${extras:+[$extras]}"; then
        _venv_fail "pip could not install the project and its dependencies (is the package index within reach?)" || return 1
    fi
    printf '%s' "$wanted" >"$stamp"
}

_make_venv() {
    local said
    if ! command -v python3 >/dev/null; then
        _venv_fail "python3 is not on the PATH; killpool needs Python 3.11 or newer" || return 1
    fi
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        _venv_fail "$(python3 --version) is too old; killpool needs Python 3.11 or newer" || return 1
    fi
    if ! said="$(python3 -m venv "$1" 2>&1)"; then
        rm -rf "$1"
        echo "$said" >&2
        _venv_fail "python3 -m venv failed; on Debian and Ubuntu the package python3-venv brings what it needs" || return 1
    fi
}
