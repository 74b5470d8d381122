//! Group commit: the next write contains all items that are added during a write.

use std::mem;

use parking_lot::Mutex;

/// Items that are written in groups, one group at a time.
pub(super) struct Groups<T> {
    waiting: Mutex<Vec<T>>,
    /// Held during a write.
    writing: tokio::sync::Mutex<()>,
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }
}

impl<T> Groups<T> {
    /// Returns after the item is written, by this call or by another one. The call that writes a group returns its result.
    pub(super) async fn write<E, F>(&self, item: T, write: impl FnOnce(Vec<T>) -> F) -> Result<(), E>
    where
        F: Future<Output = Result<(), E>>,
    {
        self.waiting.lock().push(item);
        let _writing = self.writing.lock().await;
        let group = mem::take(&mut *self.waiting.lock());
        // Empty if an earlier call wrote this item too.
        if group.is_empty() { Ok(()) } else { write(group).await }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn items_that_are_added_during_a_write_are_one_group() {
        let (groups, written) = (Groups::default(), Mutex::new(Vec::new()));
        let add = async |item: usize| {
            let write = async |group: Vec<usize>| {
                tokio::task::yield_now().await;
                written.lock().push(group);
                Ok::<_, ()>(())
            };
            groups.write(item, write).await.unwrap();
            written.lock().iter().any(|group| group.contains(&item))
        };
        assert_eq!(join_all((0..100).map(add)).await, [true; 100]);
        assert_eq!(*written.lock(), [vec![0], (1..100).collect()]);
    }
}
