-- Logout: the raw token is the proof, and its digest alone says which tenant the session belongs to. It is ended and told of
-- in a transaction of that tenant, so that the audit event stands beside it.
create function session.find_session(in_digest bytea)
returns table (session_id uuid, tenant_id text, user_id uuid)
language sql stable security definer set search_path = '' as $$
    select session_id, tenant_id, user_id from session.sessions where digest = in_digest
$$;

revoke execute on function session.find_session(bytea) from public;
grant execute on function session.find_session(bytea) to svc_session;
drop function session.revoke_by_digest(bytea, timestamptz);
