//! Lists in pages, for servers that do not stream lists.

use super::{LIST_MAX, State, Step, requests};
use crate::watch::{Signal, Watched};
use tokio::time::{Instant, timeout_at};

/// Objects per page of a list. Bounds the memory of a list's response.
pub(super) const PAGE_SIZE: u32 = 500;

/// Smallest number of objects per page: a response holds this number of the largest objects that
/// kube-apiserver stores (3 MiB).
pub(super) const PAGE_SIZE_MIN: u32 = 8;

/// A list that is in progress.
pub(super) struct Pages<W> {
    /// Objects of the present page that were not reported yet.
    page: std::vec::IntoIter<W>,
    /// Token of the next page, empty for the first one; `None` after the last one.
    next: Option<String>,
    /// Version of the last page.
    version: String,
    ends_by: Instant,
}

impl<W> Pages<W> {
    pub(super) fn new() -> Self {
        Self {
            page: Vec::new().into_iter(),
            next: Some(String::new()),
            version: String::new(),
            ends_by: Instant::now() + LIST_MAX,
        }
    }
}

impl<W: Watched, O, F: Fn(W) -> O> State<W, F> {
    /// Reports the next object, or requests the next page.
    pub(super) async fn list(&mut self, mut list: Pages<W>) -> Option<Signal<O>> {
        if let Some(object) = list.page.next() {
            self.step = Step::List(list);
            return Some(self.object(object, true));
        }
        let Some(token) = list.next else {
            return Some(self.listed(list.version, Step::Resume));
        };
        let limit = self.page_size.to_string();
        let request = self.get(&[("limit", &limit), ("continue", &token)]);
        let page = requests::list(&self.target.client, request);
        // Pages may have no objects, so the number of objects does not limit that of pages.
        let page = match timeout_at(list.ends_by, page).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return self.failed(&error, Step::Begin),
            Err(_) => return self.restart(format!("the list is longer than {LIST_MAX:?}")),
        };
        list.version = page.metadata.resource_version.unwrap_or_default();
        list.next = page.metadata.continue_.filter(|it| !it.is_empty());
        if list.next.is_none() && list.version.is_empty() {
            return self.restart("the list has no resourceVersion".into());
        }
        list.page = page.items.into_iter();
        self.step = Step::List(list);
        None
    }
}
