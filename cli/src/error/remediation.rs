//! Remediations for problems of the API in terms of the command line. The API's own remedies name headers and fields.

use contract::ProblemKind as P;

/// What a user of `svc` can do about a problem of the API.
pub(crate) const fn remediation_for(kind: P) -> &'static str {
    match kind {
        P::Unauthenticated => "Run `svc auth login`, or set SVC_TOKEN or SVC_API_KEY.",
        P::CredentialInvalid => {
            "Run `svc auth login`. If SVC_TOKEN, SVC_API_KEY or SVC_PLATFORM_TOKEN is set, replace or unset it."
        }
        P::LoginFailed => {
            "Check the password, --email and --tenant. After several failures, wait a few minutes or run `svc auth password reset`."
        }
        P::TokenInvalid => "The token was used, replaced, revoked or has expired. Request a new one.",
        P::Forbidden => "Ask an administrator of the tenant.",
        P::InsufficientScope => "Set SVC_API_KEY to a key with the scope that the message names.",
        P::TenantMismatch => "Change or omit --tenant (SVC_TENANT), or use a credential of that tenant.",
        P::SourceNotAllowed => "Set SVC_API_KEY to a key that allows the source.",
        P::ReauthenticationRequired => "Run `svc auth login` with the password, then run the command again.",
        P::NotFound => "Check the id with the `list` command of the same group.",
        P::SessionNotFound => "Pass the raw session token, or an id that `svc auth sessions list` shows.",
        P::MethodNotAllowed => "Use another method for this path.",
        P::HeaderMissing | P::HeaderInvalid => "Pass --tenant (SVC_TENANT).",
        P::TenantExists => "Choose another tenant id.",
        P::UserExists => "No invite is needed: the user can log in, or run `svc auth password reset`.",
        P::UserInvited => "Wait until the invite is accepted, or run `svc invites revoke`.",
        P::InvitePending => {
            "Run `svc invites list --status pending`, then `svc invites resend` or `svc invites revoke`."
        }
        P::LastAdmin => "Make another user an administrator first: `svc users set-role`.",
        P::TooManyApiKeys => "Revoke an unused key with `svc api-keys revoke`.",
        P::MailUnavailable => "Pass `--delivery response` to get the token in the output.",
        P::ValidationFailed => "Correct the fields that the message names.",
        P::EventIdConflict => "Give each event of a source its own event_id.",
        P::RateLimited | P::Overloaded | P::DependencyUnavailable => "Wait, then run the command again.",
        P::QuotaExceeded => "Wait, then send the rejected events again.",
        P::StreamFull => {
            "Keep the events and send them again later. The platform administrator must free space."
        }
        P::AckTimeout => "Send the rejected events again with the same event_id.",
        P::Internal => "Try again later. If the error persists, report the request id.",
        other => other.remedy(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remediations_name_no_http_headers() {
        for kind in P::ALL {
            let text = remediation_for(*kind);
            let request_format = matches!(kind, P::MalformedEncoding | P::MediaType | P::ContentEncoding);
            for header in
                ["Authorization", "X-Tenant-ID", "X-User-ID", "X-Session-ID", "Retry-After", "Allow "]
            {
                assert!(request_format || !text.contains(header), "{}: {text}", kind.code());
            }
        }
    }
}
