//! Lists in pages, so that no response exceeds the limits of the transport.

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Objects per page: kubectl's number. The largest objects that are listed, Nodes and Pods, have
/// about 20 KiB, so that a page takes a third of what the transport accepts.
const PAGE: u32 = 500;

/// Returns all objects with the labels of `selector`.
///
/// # Errors
///
/// Returns the error of the API server.
pub(crate) async fn list_all<K>(api: &Api<K>, selector: &str) -> kube::Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    list_versioned(api, selector).await.map(|(found, _)| found)
}

/// Returns all objects with the fields of `selector`.
///
/// # Errors
///
/// Returns the error of the API server.
pub(crate) async fn list_by_fields<K>(api: &Api<K>, selector: &str) -> kube::Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = ListParams::default().fields(selector);
    list_pages(api, params).await.map(|(found, _)| found)
}

/// Returns all objects with the labels of `selector`, and the resource version from which a watch continues.
///
/// # Errors
///
/// Returns the error of the API server.
pub(crate) async fn list_versioned<K>(
    api: &Api<K>,
    selector: &str,
) -> kube::Result<(Vec<K>, String)>
where
    K: Clone + Debug + DeserializeOwned,
{
    list_pages(api, ListParams::default().labels(selector)).await
}

async fn list_pages<K>(api: &Api<K>, params: ListParams) -> kube::Result<(Vec<K>, String)>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((found, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}
