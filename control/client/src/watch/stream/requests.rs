//! Requests for lists and watches.

use super::{Events, State, WATCH_MIN};
use crate::backoff;
use crate::object::{Key, Ref};
use crate::watch::Watched;
use futures_util::StreamExt as _;
use kube::Client;
use kube::api::ObjectList;
use serde::de::DeserializeOwned;
use std::time::Duration;

impl<W: Watched, F> State<W, F> {
    /// Requests the events of a watch with these parameters, until a random time.
    pub(super) async fn events(&mut self, parameters: &[(&str, &str)]) -> kube::Result<Events<W>> {
        let seconds = WATCH_MIN.mul_f64(1.0 + backoff::random()).as_secs();
        self.requested = Duration::from_secs(seconds);
        let seconds = seconds.to_string();
        let of_watch = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
        ];
        let request = self.get(&[&of_watch, parameters].concat());
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        Ok(self.target.client.request_events(request).await?.boxed())
    }

    /// Returns a request for the selected objects, with these parameters.
    pub(super) fn get(&self, parameters: &[(&str, &str)]) -> http::request::Builder {
        let id = &self.target.id;
        let key = Key::new(id.namespace.as_deref().unwrap_or_default(), "");
        let fields = id.selector.fields();
        let selectors = [
            ("labelSelector", id.selector.labels.as_str()),
            ("fieldSelector", fields.as_str()),
        ];
        let mut query = [parameters, &selectors].concat();
        query.retain(|(_, value)| !value.is_empty());
        http::Request::get(Ref::new(&id.cluster, &id.resource, &key).path(None, &query))
    }
}

/// Requests a list, or one of its pages.
pub(super) async fn list<T: Clone + DeserializeOwned>(
    client: &Client,
    request: http::request::Builder,
) -> kube::Result<ObjectList<T>> {
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}
