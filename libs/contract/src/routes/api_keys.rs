//! `/api-keys`.

use super::{Access, Answer, PAGING, Route, routes};
use crate::api_key::{ApiKey, CreateApiKey};
use crate::{Page, ProblemKind};

routes! {
    "API keys", "Credentials of programs, each for what it needs.":

    /// Create an API key
    ///
    /// The answer is the only place where the key itself stands. A program sends it as a bearer credential.
    CREATE_API_KEY = Route::post("/api-keys")
        .access(&[Access::Admin])
        .takes::<CreateApiKey>()
        .problems(&[ProblemKind::TooManyApiKeys])
        .answers(&[Answer::json::<ApiKey>(201, "The key.")]);

    /// List the API keys of the tenant
    LIST_API_KEYS = Route::get("/api-keys")
        .access(&[Access::Admin])
        .query(&[PAGING])
        .answers(&[Answer::json::<Page<ApiKey>>(200, "A page of the keys that still work, oldest first.")]);

    /// Revoke an API key
    ///
    /// Whoever holds it is refused from now on; doing so again changes nothing.
    REVOKE_API_KEY = Route::delete("/api-keys/{key_id}")
        .access(&[Access::Admin])
        .answers(&[Answer::empty(204, "The key is dead.")]);
}
