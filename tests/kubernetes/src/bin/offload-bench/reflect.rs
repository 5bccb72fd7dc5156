//! The measurements of reflected objects.

mod endpoints;
mod latency;
mod many;
mod requests;
mod restart;

use crate::clusters::{LOCAL, NATIVE, Nodes, Pair};
use anyhow::Result;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde::Serialize;
use std::time::Duration;

/// Interval at which the provider is asked whether removed objects are gone.
const POLL: Duration = Duration::from_millis(200);

/// All samples.
#[derive(Debug, Serialize)]
pub(crate) struct Samples {
    /// Samples of each kind.
    latencies: Vec<latency::OfKind>,
    /// For each pod, from its readiness at the provider until its endpoint is ready in the consumer, in seconds.
    endpoints_s: Vec<f64>,
    many: Vec<many::Sample>,
    /// What 1,000 reflected ConfigMaps add to the virtual kubelet's resident memory, in MB.
    thousand_mb: f64,
    requests: Vec<requests::OfKind>,
    /// From the start of the next virtual kubelet, or the creation of a ConfigMap if that is later, until the ConfigMap
    /// exists at the provider, in seconds.
    restart_s: Vec<f64>,
}

/// Takes the samples, `objects` of each kind.
pub(crate) async fn run(objects: u32) -> Result<Samples> {
    let pair = Pair::create(Nodes::default()).await?;
    pair.peer(&["--gw-server-service-type=NodePort"]).await?;
    for (site, namespace) in [(&pair.milan, NATIVE), (&pair.rome, LOCAL)] {
        site.namespace(namespace).await?;
    }
    pair.offload().await?;
    let latencies = latency::run(&pair, objects).await?;
    let requests = requests::run(&pair, objects).await?;
    let (many, thousand_mb) = many::run(&pair).await?;
    let restart_s = restart::run(&pair).await?;
    let endpoints_s = endpoints::run(&pair).await?;

    Ok(Samples {
        latencies,
        endpoints_s,
        many,
        thousand_mb,
        requests,
        restart_s,
    })
}

/// Removes the objects of a series, and waits until they do not exist at the provider, so that their deletions are not
/// counted in the next series.
async fn remove(
    (here, there): (&Api<DynamicObject>, &Api<DynamicObject>),
    prefix: &str,
) -> Result<()> {
    for name in names(here, prefix).await? {
        here.delete(&name, &DeleteParams::default()).await?;
    }
    while !names(there, prefix).await?.is_empty() {
        tokio::time::sleep(POLL).await;
    }

    Ok(())
}

async fn names(api: &Api<DynamicObject>, prefix: &str) -> Result<Vec<String>> {
    let objects = api.list_metadata(&ListParams::default()).await?;
    let names = objects.into_iter().filter_map(|it| it.metadata.name);

    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}
