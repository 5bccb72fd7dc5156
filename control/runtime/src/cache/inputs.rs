//! Takes the signals of watches into the cache.

use super::{Cache, CacheLimits, Changed};
use crate::entry::Signal;
use control_client::watch::WatchId;

impl Cache {
    /// Takes a signal of a watch; returns the changes.
    ///
    /// # Errors
    ///
    /// Returns the limits of the cluster if an object would exceed them; it is not kept then.
    pub(crate) fn take_signal(
        &mut self,
        id: &WatchId,
        signal: Signal,
    ) -> Result<Vec<Changed>, CacheLimits> {
        let change = match signal {
            Signal::ListBegins => {
                self.begin_list(id);
                None
            }
            Signal::Object {
                object: Ok(entry),
                is_listed,
            } => self.put_watched(id, entry, is_listed)?,
            Signal::Deleted { key, uid, version } => self.delete_watched(id, &key, &uid, version),
            Signal::ListEnds => return Ok(self.end_list(id)),
            Signal::Object {
                object: Err(error),
                is_listed,
            } => {
                if is_listed {
                    self.keep_listed(id, &error.key);
                }
                None
            }
            Signal::Refused(message) => {
                self.refuse(id, message);
                None
            }
            Signal::Bookmark | Signal::WentBack | Signal::Failed(_) => None,
        };

        Ok(change.into_iter().collect())
    }
}
