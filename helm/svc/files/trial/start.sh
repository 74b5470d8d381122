# Creates the database at the first start, in single-user mode so that it is not reachable before it is complete. Then serves.
set -eu
if [ ! -e "$DATA.made" ]; then
    rm -rf "$DATA"
    initdb --pgdata="$DATA" --username=postgres --pwfile=/passwords/postgres --auth=scram-sha-256 --encoding=UTF8 --locale=C
    echo 'create database svc' | postgres --single -D "$DATA" postgres
    # -j: a semicolon and an empty line end a statement, so that it can have several lines.
    postgres --single -j -D "$DATA" postgres < /start/roles.sql
    for role in svc_identity_migrator svc_identity svc_session_migrator svc_session; do
        read -r password < "/passwords/$role" || [ "$password" ] # the file has no final newline
        echo "alter role $role password '$password'" | postgres --single -D "$DATA" postgres
    done
    postgres --single -j -D "$DATA" svc < /start/schemas.sql
    echo 'host all all all scram-sha-256' >> "$DATA/pg_hba.conf"
    : > "$DATA.made"
fi
exec postgres -D "$DATA" -c listen_addresses='*' -c unix_socket_directories=/tmp -c max_connections=200
