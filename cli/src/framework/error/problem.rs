//! Problems of the API in terms of the command line: the API's own texts name headers and fields of bodies.

use contract::ProblemKind as P;

/// What happened, and what a user of `svc` can do about it, for a problem of a request to this path, or to a route with this path
/// template; both are below `/api/v1`.
pub(super) fn texts(kind: P, path: &str) -> (&'static str, &'static str) {
    let path = path.split('?').next().unwrap_or_default();
    match (kind, path) {
        (P::NotFound, _) => not_found(path),
        (P::LoginFailed, "/auth/password/change") => (
            "The current password is wrong",
            "Check the current password. After several failures, wait a few minutes, or run `svc auth password reset`.",
        ),
        (P::TokenInvalid, "/users/accept-invite" | "/users/accept-invite/inspect") => (
            "The invite token is not valid",
            "If you accepted the invite before, run `svc auth login`. Else ask an administrator for a new token: `svc \
             invites list`, then `svc invites resend`, or `svc users invite`.",
        ),
        (P::TokenInvalid, "/auth/second-factor") => (
            "The login is not active any more",
            "Run `svc auth login` again: a login accepts five codes within five minutes.",
        ),
        (P::TokenInvalid, "/auth/passkey/login" | "/pages/sessions/passkey") => (
            "The options of the passkey are expired or used",
            "Request new options, and send an assertion for them within five minutes.",
        ),
        (P::RateLimited, "/auth/second-factor") => {
            (kind.title(), "Wait, or run `svc auth login` again and enter a recovery code.")
        }
        (P::TokenInvalid, _) => (
            "The reset token is not valid",
            "The token was used, replaced or has expired. Request a new one: `svc auth password reset`.",
        ),
        (P::UserExists, _) if path.starts_with("/users/invites/") => (
            "The invite was accepted",
            "No invite is needed. To block the user, run `svc users disable` with the e-mail address.",
        ),
        (P::RateLimited, _) if path.starts_with("/users/invite") => {
            (kind.title(), "Wait, or pass --delivery response to get the token in the output.")
        }
        (P::Forbidden, "/users") => (
            kind.title(),
            "Only administrators list users and find them by e-mail address. Pass the user id (`svc auth whoami` shows \
             yours), or use the credential of an administrator.",
        ),
        (P::UserInvited, _) => (
            kind.title(),
            "The user must accept the invite first: `svc invites list --status pending`, then `svc invites resend`. To \
             withdraw it, run `svc invites revoke`.",
        ),
        _ => (kind.title(), remediation_for(kind)),
    }
}

/// Returns whether a request with this problem may have had its effect: the service can lose a dependency after a commit, and
/// an event can be stored although its acknowledgement was late. All other problems that are retryable reject a request before
/// it is processed.
pub(crate) const fn may_have_effect(kind: P) -> bool {
    matches!(kind, P::DependencyUnavailable | P::AckTimeout)
}

/// Texts for an object that does not exist.
fn not_found(path: &str) -> (&'static str, &'static str) {
    let tenant = ("Tenant not found", "Check the tenant id, or --tenant (SVC_TENANT): `svc tenants list`.");
    let user = ("User not found", "List the users of the tenant: `svc users list`.");
    match path {
        _ if path.starts_with("/users/invites/") => (
            "Invite not found",
            "List the invites: `svc invites list`. If the invite is expired or revoked, invite the person again: `svc users \
             invite`.",
        ),
        "/users" | "/users/invite" | "/users/invites" | "/api-keys" => tenant,
        _ if path.starts_with("/tenants") => tenant,
        "/auth/sessions" => user,
        _ if path.starts_with("/users/") => user,
        _ if path.starts_with("/auth/sessions/") => (
            "Session not found",
            "List your sessions: `svc auth sessions list`. Sessions of another user: with --user-id.",
        ),
        _ if path.starts_with("/auth/factors") => (
            "Second factor not found",
            "List your factors: `svc auth factors list`. An authenticator app comes first: `svc auth factors add totp`.",
        ),
        _ if path.starts_with("/auth/device") => (
            "No device waits for this code",
            "Compare the code with the device, and check --tenant. A code is valid for ten minutes: to get a new one, run `svc auth login \
             --device` on the device again.",
        ),
        _ if path.starts_with("/api-keys") => {
            ("API key not found", "List the active keys: `svc api-keys list`.")
        }
        _ if path.starts_with("/consumers") => {
            ("Consumer not found", "List the consumers: `svc consumers list`.")
        }
        _ => (P::NotFound.title(), "Check the path and the ids in it."),
    }
}

/// What a user of `svc` can do about a problem.
pub(crate) const fn remediation_for(kind: P) -> &'static str {
    match kind {
        P::Unauthenticated => "Run `svc auth login`, or set SVC_TOKEN or SVC_API_KEY.",
        P::CredentialInvalid => {
            "Run `svc auth login`. If SVC_TOKEN, SVC_API_KEY or SVC_PLATFORM_TOKEN is set, replace or unset it."
        }
        P::LoginFailed => {
            "Check the password, --email and --tenant. After several failures, wait a few minutes or run `svc auth password reset`. If no \
             login of the tenant works, ask the platform administrator whether it is suspended: `svc tenants get`."
        }
        P::Forbidden => {
            "Ask a caller that the message names, or use its credential: `svc auth login` for a user, SVC_API_KEY for a key, \
                SVC_PLATFORM_TOKEN for the platform administrator."
        }
        P::InsufficientScope => {
            "Set SVC_API_KEY to a key with the scope that the message names. An administrator creates it: `svc api-keys create --scope`."
        }
        P::TenantMismatch => {
            "Change or omit --tenant (SVC_TENANT) and --context (SVC_CONTEXT), or use a credential of that tenant."
        }
        P::SourceNotAllowed => {
            "Set SVC_API_KEY to a key that allows the source. An administrator creates it: `svc api-keys create --source-id`."
        }
        P::ReauthenticationRequired => "Run `svc auth login` with the password, then run the command again.",
        P::SessionNotFound => "Pass the raw session token, or an id that `svc auth sessions list` shows.",
        P::MethodNotAllowed => "Use another METHOD for this path. `svc api GET /openapi.json` lists them.",
        P::HeaderMissing | P::HeaderInvalid => "Pass --tenant (SVC_TENANT).",
        P::TenantExists => {
            "Choose another tenant id: an existing tenant (`svc tenants get`) or a deleted one has this id."
        }
        P::TenantActive => {
            "Suspend the tenant first: `svc tenants suspend`. A suspended tenant can be resumed."
        }
        P::UserExists => {
            "An active user can log in, or run `svc auth password reset`. Enable a disabled one: `svc users enable`."
        }
        P::EmailSimilar => {
            "Check the spelling: another user or invited person of the tenant has an address that looks the same."
        }
        P::InvitePending => {
            "Run `svc invites list --status pending`, then `svc invites resend` (--delivery response prints the new token and sends \
             no mail) or `svc invites revoke`."
        }
        P::LastAdmin => "Make another user an administrator first: `svc users set-role`.",
        P::TooManyApiKeys => "Revoke an unused key: `svc api-keys list`, then `svc api-keys revoke`.",
        P::TooManyInvites => {
            "Revoke pending invites: `svc invites list --status pending`, then `svc invites revoke`."
        }
        P::TooManyUsers => "Ask the platform administrator to invite the person or to raise the limit.",
        P::MailUnavailable => "Pass `--delivery response` to get the token in the output.",
        P::ConsumerExists => "Choose another name, or delete the consumer: `svc consumers delete`.",
        P::ValidationFailed => "Correct the options, arguments or fields that the message names.",
        P::EventIdConflict => "Give each event of a source its own event_id.",
        P::RateLimited | P::Overloaded | P::DependencyUnavailable => "Wait, then run the command again.",
        P::QuotaExceeded => {
            "Wait, then send the rejected events again. The platform administrator can raise a quota that the message \
                names: `svc tenants update`."
        }
        P::TooManyStreams => "Stop another `svc events tail` of the tenant, then run the command again.",
        P::StreamFull => {
            "Keep the events and send them again later. The platform administrator must free space."
        }
        P::AckTimeout => "Send the rejected events again with the same event_id.",
        P::Internal => "Try again later. If the error persists, report the request id.",
        other => remediation_for_factor(other),
    }
}

/// The same, for problems of second factors.
const fn remediation_for_factor(kind: P) -> &'static str {
    match kind {
        P::SecondFactorFailed => {
            "Run `svc auth login` again with the next code of the app, because each code works once, or with an unused recovery code. To \
             use a passkey: `svc auth login --device`."
        }
        P::SecondFactorRequired => {
            "Run `svc auth login`: it prompts for the code, or reads it with --code-stdin."
        }
        P::SecondFactorSetupRequired => {
            "Run `svc auth login` in a terminal, which sets up an authenticator app. Or open the page /api/v1/pages/factors of the \
             service, which can also set up a passkey."
        }
        P::LastFactor => {
            "Add a passkey on the page /api/v1/pages/factors before you remove this factor, or ask an administrator \
             to run `svc users reset-factors`: the next login sets up a new one."
        }
        P::FactorExists => {
            "Remove the existing app first: `svc auth factors list`, then `svc auth factors remove`. \
             If the tenant requires a second factor, add a passkey before."
        }
        P::TotpUnavailable => "Ask the platform administrator to set SVC_FACTOR_KEY.",
        P::PasskeyUnavailable => {
            "Ask the platform administrator to set SVC_PUBLIC_URL to an address with a host name."
        }
        P::TooManyPasskeys => {
            "Remove an unused passkey: `svc auth factors list`, then `svc auth factors remove`."
        }
        other => other.remedy(),
    }
}

/// Returns the option, argument or input that sets a field of a request to this path.
pub(super) fn option_of(pointer: &str, path: &str) -> Option<String> {
    let mut names = pointer.split('/').skip(1);
    let (first, second) = (names.next()?, names.next());
    let option = |field: &str| format!("--{}", field.replace('_', "-"));
    Some(match (first, second) {
        ("name", _) if path.starts_with("/consumers") || path.starts_with("/auth/factors") => {
            "NAME".to_owned()
        }
        ("tenant_id", _) if !path.starts_with("/tenants") => "--tenant".to_owned(),
        // The filter of `svc events tail`.
        ("event_type", _) => "--type".to_owned(),
        ("tenant_id" | "user_code", _) => first.to_uppercase(),
        ("quota", Some(field @ ("events_per_second" | "bytes_per_second"))) => option(field),
        ("current_password" | "new_password" | "password" | "token", _) => first.replace('_', " "),
        ("ack_wait_seconds", _) => "--ack-wait".to_owned(),
        // A repeatable option.
        ("event_types" | "scopes" | "source_ids", _) => option(first.trim_end_matches('s')),
        (
            "admin_email"
            | "after"
            | "all_tenants"
            | "delivery"
            | "display_name"
            | "email"
            | "expires_at"
            | "key_id"
            | "kind"
            | "limit"
            | "max_ack_pending"
            | "name"
            | "partitions"
            | "passkey_login"
            | "password_min_length"
            | "role"
            | "second_factor"
            | "since"
            | "source_id"
            | "start"
            | "status"
            | "to"
            | "user_id",
            _,
        ) => option(first),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remediations_name_no_http_headers() {
        let routes: Vec<_> = contract::routes::all().map(|route| route.path).collect();
        for (kind, path) in P::ALL.iter().flat_map(|kind| routes.iter().map(move |path| (*kind, *path))) {
            let (_, text) = texts(kind, path);
            let request_format = matches!(kind, P::MalformedEncoding | P::MediaType | P::ContentEncoding);
            for header in
                ["Authorization", "X-Tenant-ID", "X-User-ID", "X-Session-ID", "Retry-After", "Allow "]
            {
                assert!(request_format || !text.contains(header), "{}: {text}", kind.code());
            }
        }
    }

    #[test]
    fn missing_object_is_named_for_every_route_with_a_parameter() {
        for route in contract::routes::all()
            .filter(|route| route.path.contains("_id}") || route.path.contains("_name}"))
        {
            let (title, remediation) = texts(P::NotFound, route.path);
            assert_ne!(title, P::NotFound.title(), "{}", route.path);
            assert!(remediation.contains(" list`"), "{}: {remediation}", route.path);
        }
        let of = |path| texts(P::NotFound, path).0;
        assert_eq!(of("/users/01890a5d"), "User not found");
        assert_eq!(of("/users/invites/01890a5d/resend"), "Invite not found");
        assert_eq!(of("/users?email=a"), "Tenant not found");
        assert_eq!(of("/api-keys?limit=200"), "Tenant not found");
    }

    #[test]
    fn fields_have_the_names_of_options() {
        for (pointer, path, option) in [
            ("/quota/events_per_second", "/tenants", Some("--events-per-second")),
            ("/source_ids/3", "/api-keys", Some("--source-id")),
            ("/name", "/api-keys", Some("--name")),
            ("/name", "/consumers", Some("NAME")),
            ("/new_password", "/auth/password/change", Some("new password")),
            ("/tenant_id", "/tenants", Some("TENANT_ID")),
            ("/tenant_id", "/consumers", Some("--tenant")),
            ("/password_min_length", "/tenants/acme", Some("--password-min-length")),
            ("/after", "/events/stream?after=x", Some("--after")),
            ("/event_type", "/events/stream", Some("--type")),
            ("/unknown", "/consumers", None),
        ] {
            assert_eq!(option_of(pointer, path).as_deref(), option, "{pointer} {path}");
        }
    }
}
