//! `liqoctl delete`: deletes one object.

use super::Run;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::objects::Kind;
use crate::progress::begin;
use anyhow::{Result, bail};
use clap::Args;
use kube::Api;
use std::marker::PhantomData;

/// Flags of `liqoctl delete KIND`.
#[derive(Args, Debug)]
pub(crate) struct Delete<K: Kind> {
    /// The name of the object.
    name: String,

    #[arg(skip)]
    kind: PhantomData<K>,
}

impl<K: Kind> Run for Delete<K> {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let (kind, name, namespace) = (K::kind(&()), &self.name, &cluster.namespace);
        let deleting = begin("", format_args!("Deleting {kind} {name}"));
        let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
        if !cluster.delete(&api, &kind, name).await? {
            bail!(
                "there is no {kind} {name} in namespace {namespace} of {}: name its namespace with -n",
                cluster.place()
            );
        }
        deleting.done(format_args!("{kind} {name} correctly deleted"));
        Ok(())
    }
}
