//! The measurements of reflected objects.

mod endpoints;
mod latency;
mod many;
mod requests;
mod restart;

use crate::clusters::{LOCAL, NATIVE, Nodes, Pair};
use anyhow::Result;
use serde::Serialize;

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
