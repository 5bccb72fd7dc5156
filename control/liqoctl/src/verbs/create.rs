//! `liqoctl create`: writes one object, or prints it.

use super::Run;
use crate::cluster::{Cluster, DEFAULT_NAMESPACE};
use crate::global::Global;
use crate::manifest;
use crate::objects::Kind;
use crate::output::{self, Format};
use crate::parse;
use crate::progress::begin;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use clap::Args;
use kube::{Api, Resource as _};
use serde_json::Value;
use std::fmt::Debug;
use std::time::Duration;

/// The default limit of --wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Flags that every kind has.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The name of the object.
    pub(crate) name: String,

    /// The cluster ID of the peer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    pub(crate) remote_cluster_id: String,

    /// Print the object as json or yaml instead of creating it.
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

/// The namespaces that a manifest names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespaces<'a> {
    /// The namespace of the object.
    pub(crate) object: &'a str,
    /// Liqo's namespace.
    pub(crate) liqo: &'a str,
}

/// Flags from which an object of a kind is built.
pub(crate) trait Build: Args + Debug {
    /// The kind.
    type Object: Kind;

    /// Returns the flags that every kind has.
    fn common(&self) -> &Common;

    /// Returns the object to write.
    fn manifest(&self, namespaces: Namespaces<'_>) -> Value;

    /// Returns whether to wait until the object is ready.
    fn wait(&self) -> bool;

    /// Checks that the controller manager has processed the object.
    ///
    /// # Errors
    ///
    /// Returns the missing part.
    fn is_ready(object: &Self::Object) -> Result<(), String>;
}

impl<B: Build> Run for B {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        if let Some(format) = self.common().output {
            return preview(&self, format, global, &cluster.namespace);
        }
        let installation = cluster.installation().await?;
        let object = self.manifest(Namespaces {
            object: &cluster.namespace,
            liqo: &installation.namespace,
        });
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        let kind = B::Object::kind(&());
        let creating = begin("", format_args!("Creating {kind}"));
        let api = Api::<B::Object>::namespaced(cluster.client.clone(), &cluster.namespace);
        let created = cluster.apply(&api, object).await?;
        creating.done(format_args!("{kind} correctly created"));
        if self.wait() {
            wait_until_ready::<B>(&api, created, &self.common().name, deadline).await?;
        }
        Ok(())
    }
}

/// Prints the object instead of writing it. No API server is needed, so Liqo's namespace is the
/// default one unless a flag names it.
fn preview(flags: &impl Build, format: Format, global: &Global, namespace: &str) -> Result<()> {
    let liqo = global.liqo_namespace.as_deref();
    let mut object = flags.manifest(Namespaces {
        object: namespace,
        liqo: liqo.unwrap_or(DEFAULT_NAMESPACE),
    });
    manifest::add_metadata(
        &mut object,
        &global.global_labels,
        &global.global_annotations,
    );
    output::print(format, &manifest::printed(object))
}

async fn wait_until_ready<B: Build>(
    api: &Api<B::Object>,
    created: B::Object,
    name: &str,
    deadline: Deadline,
) -> Result<()> {
    let kind = B::Object::kind(&());
    let waiting = begin("", format_args!("Waiting for {kind} to be ready"));
    let mut last = created;
    deadline
        .until(&format!("making {kind} ready"), async || {
            if let Err(missing) = B::is_ready(&last) {
                if let Ok(Some(read)) = api.get_opt(name).await {
                    last = read;
                }
                return Ok(Found::Missing(missing));
            }
            Ok(Found::Ready(()))
        })
        .await?;
    waiting.done(format_args!("{kind} is ready"));
    Ok(())
}
