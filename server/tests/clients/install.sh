#!/usr/bin/env bash
# Clients of PostgreSQL for run.py, those that are missing: Debian's packages, and drivers from
# their registries into a directory outside the clone.
set -euo pipefail
cache="${STRANDLINE_CLIENTS:-$HOME/.cache/strandline/clients}"
mkdir -p "$cache"

missing=()
command -v psql >/dev/null || missing+=(postgresql-client)
command -v pgbench >/dev/null || missing+=(postgresql)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v java >/dev/null || missing+=(default-jdk-headless)
command -v mvn >/dev/null || [ -e "$cache/jdbc/postgresql.jar" ] || missing+=(maven)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if ((${#missing[@]})); then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! "$cache/venv/bin/python" -c 'import alembic, django, psycopg, sqlalchemy' 2>/dev/null; then
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install -q 'psycopg[binary]==3.3.*' 'sqlalchemy==2.1.*' \
        'alembic==1.20.*' 'django==5.2.*'
fi
if [ ! -d "$cache/node/node_modules/pg" ]; then
    mkdir -p "$cache/node"
    (cd "$cache/node" && npm install --silent --no-fund --no-audit pg@8)
fi
if [ ! -e "$cache/jdbc/postgresql.jar" ]; then
    mvn -q dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 \
        -DoutputDirectory="$cache/jdbc" -Dmdep.stripVersion=true
fi
