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

alter role svc_identity set statement_timeout = '5s';

alter role svc_identity set lock_timeout = '2s';

alter role svc_identity set idle_in_transaction_session_timeout = '10s';

alter role svc_session set statement_timeout = '5s';

alter role svc_session set lock_timeout = '2s';

alter role svc_session set idle_in_transaction_session_timeout = '10s';

alter role svc_identity_migrator set lock_timeout = '5s';

alter role svc_session_migrator set lock_timeout = '5s';

