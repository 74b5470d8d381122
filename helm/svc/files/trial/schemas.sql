do $$
begin
    execute format('revoke all on database %I from public', current_database());
    execute format(
        'grant connect on database %I to svc_identity_migrator, svc_identity, svc_session_migrator, svc_session',
        current_database()
    );
end
$$;

revoke all on schema public from public;

create schema if not exists identity authorization svc_identity_migrator;

create schema if not exists session authorization svc_session_migrator;

grant usage on schema identity to svc_identity;

grant usage on schema session to svc_session;

