//! List a tenant's live API keys.

use authn::Caller;
use contract::Page;
use contract::api_key::ApiKey;
use service::http::page::Paging;
use tenancy::KeyId;

use super::App;
use crate::store::api_key;

impl App {
    /// Those of the administrator's tenant.
    pub(crate) async fn list_api_keys(
        &self,
        admin: &Caller,
        paging: &Paging<KeyId>,
    ) -> Result<Page<ApiKey>, database::Error> {
        let mut tx = self.database.tenant(&admin.scope()).await?;
        let keys = api_key::list(&mut tx, paging.after, paging.rows(), self.clock.now()).await?;
        Ok(paging.page(keys, |key| key.id))
    }
}
