-- Creates the roles of the services. Run as a superuser, once per server. The script is idempotent.
-- A migrator role owns a schema and runs its migrations. A runtime role reads and writes rows. Neither can bypass row
-- security. Set the passwords separately: alter role … password ….
do $$
declare
    name text;
begin
    foreach name in array array['svc_identity_migrator', 'svc_identity', 'svc_session_migrator', 'svc_session']
    loop
        if not exists (select from pg_roles where rolname = name) then
            execute format('create role %I', name);
        end if;
        execute format(
            'alter role %I login nosuperuser nobypassrls nocreatedb nocreaterole noreplication noinherit', name
        );
    end loop;
end
$$;

alter role svc_identity_migrator set search_path = identity;
alter role svc_identity set search_path = identity;
alter role svc_session_migrator set search_path = session;
alter role svc_session set search_path = session;

-- The services wait six seconds for a statement, and a request takes at most ten. Longer statements would only block others.
alter role svc_identity set statement_timeout = '5s';
alter role svc_identity set lock_timeout = '2s';
alter role svc_identity set idle_in_transaction_session_timeout = '10s';
alter role svc_session set statement_timeout = '5s';
alter role svc_session set lock_timeout = '2s';
alter role svc_session set idle_in_transaction_session_timeout = '10s';

-- A migration can take long, but while it waits for a lock, other statements queue behind it.
alter role svc_identity_migrator set lock_timeout = '5s';
alter role svc_session_migrator set lock_timeout = '5s';
