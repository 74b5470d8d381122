-- The roles of the services, which no migration makes. Run as a superuser, once a server; running it again is harmless.
-- A migrator owns a schema and changes its shape; a runtime role only works with the rows. Neither may look past row
-- security. Passwords are set elsewhere: alter role … password ….
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

-- A request has at most ten seconds; a statement that would outlive it only holds others up.
alter role svc_identity set statement_timeout = '5s';
alter role svc_identity set lock_timeout = '2s';
alter role svc_identity set idle_in_transaction_session_timeout = '10s';
alter role svc_session set statement_timeout = '5s';
alter role svc_session set lock_timeout = '2s';
alter role svc_session set idle_in_transaction_session_timeout = '10s';

-- A migration may take long, but must not queue everybody behind a lock that it waits for.
alter role svc_identity_migrator set lock_timeout = '5s';
alter role svc_session_migrator set lock_timeout = '5s';
