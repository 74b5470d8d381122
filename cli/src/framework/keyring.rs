//! The keyring of the desktop: the Secret Service over D-Bus (GNOME Keyring and others). Other platforms have none
//! here.

/// Why the keyring cannot be used.
pub(crate) type Result<T> = std::result::Result<T, String>;

pub(crate) use platform::{delete, load, probe, store};

/// Names the item of a login.
#[derive(Clone, Debug)]
pub(crate) struct ItemKey {
    pub(crate) context: String,
    /// Base URL.
    pub(crate) service: String,
    pub(crate) tenant: String,
}

#[cfg(target_os = "linux")]
mod platform {
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use contract::Secret;
    use dbus_secret_service::{Collection, EncryptionType, Error, Item, SecretService};

    use super::{ItemKey, Result};
    use crate::framework::environment;

    /// Longest wait for the keyring. Above the time in which the bus starts it.
    const LIMIT: Duration = Duration::from_secs(3);

    /// Checks that the keyring answers and is unlocked.
    pub(crate) fn probe() -> Result<()> {
        with_collection(|_| Ok(()))
    }

    /// Stores the token of a session.
    pub(crate) fn store(key: &ItemKey, token: &Secret) -> Result<()> {
        let (key, token) = (key.clone(), token.clone());
        with_collection(move |collection| {
            let ItemKey { context, service, tenant } = &key;
            let label = format!("svc: session of context {context}, tenant {tenant} at {service}");
            let secret = token.expose().as_bytes();
            collection.create_item(&label, attributes(&key), secret, true, "text/plain").map(drop)
        })
    }

    /// Token of a session; `None` if it is not in the keyring.
    pub(crate) fn load(key: &ItemKey) -> Result<Option<Secret>> {
        let key = key.clone();
        with_collection(move |collection| {
            let Some(item) = find(collection, &key)? else { return Ok(None) };
            let secret = item.get_secret()?;
            Ok(Some(Secret::new(String::from_utf8_lossy(&secret))))
        })
    }

    /// Removes the token of a session, if there is one.
    pub(crate) fn delete(key: &ItemKey) -> Result<()> {
        let key = key.clone();
        with_collection(move |collection| match find(collection, &key)? {
            Some(item) => item.delete(),
            None => Ok(()),
        })
    }

    fn find<'a>(
        collection: &'a Collection<'_>,
        key: &ItemKey,
    ) -> std::result::Result<Option<Item<'a>>, Error> {
        Ok(collection.search_items(attributes(key))?.into_iter().next())
    }

    fn attributes(key: &ItemKey) -> HashMap<&str, &str> {
        HashMap::from([
            ("application", "svc"),
            ("service", key.service.as_str()),
            ("tenant", key.tenant.as_str()),
            ("context", key.context.as_str()),
        ])
    }

    /// Runs work with the unlocked default collection, on a separate thread, because libdbus can wait longer.
    fn with_collection<T: Send + 'static>(
        work: impl FnOnce(&Collection<'_>) -> std::result::Result<T, Error> + Send + 'static,
    ) -> Result<T> {
        require_bus()?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let result = || -> Result<T> {
                let text = |error: Error| error.to_string();
                // No dialog is shown: a program that runs the client could not answer it.
                let service =
                    SecretService::connect_with_max_prompt_timeout(EncryptionType::Plain, 0).map_err(text)?;
                let collection = match service.get_default_collection() {
                    Ok(collection) => collection,
                    Err(Error::NoResult) => return Err("it has no default collection".to_owned()),
                    Err(error) => return Err(text(error)),
                };
                if collection.is_locked().map_err(text)? {
                    return Err("it is locked".to_owned());
                }
                work(&collection).map_err(text)
            };
            // Nothing receives a result that is too late.
            let _ = sender.send(result());
        });
        receiver
            .recv_timeout(LIMIT)
            .unwrap_or_else(|_| Err(format!("it did not answer within {} s", LIMIT.as_secs())))
    }

    /// Without a session bus, libdbus would start one.
    fn require_bus() -> Result<()> {
        let is_in_runtime_directory = || {
            environment::text("XDG_RUNTIME_DIR")
                .is_some_and(|directory| Path::new(&directory).join("bus").exists())
        };
        if environment::text("DBUS_SESSION_BUS_ADDRESS").is_some() || is_in_runtime_directory() {
            Ok(())
        } else {
            Err("there is no D-Bus session".to_owned())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use contract::Secret;

    use super::{ItemKey, Result};

    fn unsupported<T>() -> Result<T> {
        Err("svc supports none on this platform".to_owned())
    }

    pub(crate) fn probe() -> Result<()> {
        unsupported()
    }

    pub(crate) fn store(_: &ItemKey, _: &Secret) -> Result<()> {
        unsupported()
    }

    pub(crate) fn load(_: &ItemKey) -> Result<Option<Secret>> {
        unsupported()
    }

    pub(crate) fn delete(_: &ItemKey) -> Result<()> {
        unsupported()
    }
}
