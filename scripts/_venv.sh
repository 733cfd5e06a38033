# shellcheck shell=bash
# Sourced by the other scripts: ensure_venv EXTRAS makes .venv beside pyproject.toml and installs the project into it,
# and does nothing when neither has changed.

ensure_venv() {
    local extras="${1:-}" root stamp wanted
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
    stamp="$root/.venv/.killpool-stamp-${extras:-none}"
    wanted="$(sha256sum "$root/pyproject.toml" | cut -d' ' -f1)"
    if [ -x "$root/.venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    if [ ! -w "$root" ]; then
        echo "killpool: $root is not writable by $(id -un), so .venv cannot be made there" >&2
        return 1
    fi
    if [ ! -x "$root/.venv/bin/python" ]; then
        rm -rf "$root/.venv"
        if ! python3 -m venv "$root/.venv"; then
            echo "killpool: python3 -m venv failed; on Debian the package python3-venv brings it" >&2
            return 1
        fi
    fi
    if ! "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root${extras:+[$extras]}"; then
        echo "killpool: pip could not install the project and its dependencies" >&2
        return 1
    fi
    printf '%s' "$wanted" >"$stamp"
}
