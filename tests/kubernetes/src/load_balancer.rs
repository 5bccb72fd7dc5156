//! Assigns addresses of the underlay to Services of type LoadBalancer.
//!
//! The addresses belong to the node of the control plane. kube-proxy reads the addresses from the
//! status of Services, and forwards the traffic of the Services.

use crate::host;
use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

/// The last octets of the addresses that can be assigned.
const RANGE: std::ops::RangeInclusive<u8> = 100..=249;

/// The device of the node to which the addresses are added.
const DEVICE: &str = "eth0";

/// The namespace and the name of a Service.
type Key = (String, String);

#[derive(Debug, Default)]
struct Addresses {
    assigned: BTreeMap<Key, Ipv4Addr>,
}

impl Addresses {
    /// Returns the address of a Service, or `None` if all addresses are assigned. Prefers `known`,
    /// which is the address in the Service's status, over the first free address.
    fn assign(&mut self, key: &Key, known: Option<Ipv4Addr>, prefix: [u8; 3]) -> Option<Ipv4Addr> {
        if let Some(address) = self.assigned.get(key) {
            return Some(*address);
        }
        let [a, b, c] = prefix;
        let taken: BTreeSet<_> = self.assigned.values().copied().collect();
        let mut pool = RANGE.map(|host| Ipv4Addr::new(a, b, c, host));
        let address = known
            .filter(|known| pool.clone().any(|it| it == *known) && !taken.contains(known))
            .or_else(|| pool.find(|address| !taken.contains(address)))?;
        self.assigned.insert(key.clone(), address);

        Some(address)
    }

    /// Releases the address of a Service, and returns the address.
    fn release(&mut self, key: &Key) -> Option<Ipv4Addr> {
        self.assigned.remove(key)
    }
}

/// Assigns addresses until the process is killed. `prefix` is the first three octets of the
/// addresses.
///
/// # Errors
///
/// Returns an error if the watch fails. Process 1 then restarts this program.
pub(crate) async fn run(kubeconfig: &Path, prefix: [u8; 3]) -> Result<()> {
    let config = Kubeconfig::read_from(kubeconfig).context("failed to read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig is invalid")?;
    let client = Client::try_from(config).context("failed to create a client")?;
    let services: Api<Service> = Api::all(client.clone());

    clear(prefix)?;
    let mut addresses = Addresses::default();
    let mut events = std::pin::pin!(watcher(services, watcher::Config::default()));
    let mut first = Vec::new();
    loop {
        let event = events
            .try_next()
            .await
            .context("failed to watch Services")?;
        match event.context("the watch has ended")? {
            Event::Init => first.clear(),
            Event::InitApply(service) => first.push(service),
            Event::InitDone => {
                // Services with an address must keep the address, so these Services are processed
                // first.
                first.sort_by_key(|service| known(service).is_none());
                for service in first.drain(..) {
                    apply(&client, &mut addresses, &service, prefix).await?;
                }
            }
            Event::Apply(service) => apply(&client, &mut addresses, &service, prefix).await?,
            Event::Delete(service) => release(&mut addresses, &key(&service))?,
        }
    }
}

async fn apply(
    client: &Client,
    addresses: &mut Addresses,
    service: &Service,
    prefix: [u8; 3],
) -> Result<()> {
    let key = key(service);
    let spec = service.spec.as_ref();
    let needs_address = spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    });
    let api: Api<Service> = Api::namespaced(client.clone(), &key.0);
    let needs_address = needs_address && service.metadata.deletion_timestamp.is_none();
    let address = if needs_address {
        addresses.assign(&key, known(service), prefix)
    } else {
        release(addresses, &key)?;
        None
    };
    if needs_address && address.is_none() {
        println!("{}/{} gets no address: all are assigned", key.0, key.1);
    }
    if let Some(address) = address {
        host::ip(
            None,
            &[format!("address replace {address}/32 dev {DEVICE}")],
        )?;
    }
    if address != known(service) {
        let ingress: Vec<_> = address.map(|ip| json!({"ip": ip})).into_iter().collect();
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let patched = api
            .patch_status(&key.1, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        match patched {
            Ok(_) => println!("{}/{} has {address:?}", key.0, key.1),
            // The Service was deleted. The next event of the watch reports the deletion.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("failed to write a Service's status"),
        }
    }

    Ok(())
}

fn release(addresses: &mut Addresses, key: &Key) -> Result<()> {
    match addresses.release(key) {
        Some(address) => host::ip(None, &[format!("address delete {address}/32 dev {DEVICE}")]),
        None => Ok(()),
    }
}

/// Removes the addresses that an earlier run of this program has added. Each Service gets its
/// address again, because its status contains the address.
fn clear(prefix: [u8; 3]) -> Result<()> {
    let [a, b, c] = prefix;
    let shown = host::run("ip", &["-4", "-oneline", "address", "show", "dev", DEVICE])?;
    let stale: Vec<_> = RANGE
        .map(|host| format!("{a}.{b}.{c}.{host}/32"))
        .filter(|address| shown.contains(&format!(" {address} ")))
        .map(|address| format!("address delete {address} dev {DEVICE}"))
        .collect();

    host::ip(None, &stale)
}

fn key(service: &Service) -> Key {
    (service.namespace().unwrap_or_default(), service.name_any())
}

fn known(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?;
    ingress.first()?.ip.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: [u8; 3] = [172, 18, 1];

    fn key(name: &str) -> Key {
        ("default".into(), name.into())
    }

    #[test]
    fn each_service_has_an_address_of_its_own_and_keeps_it() {
        let mut addresses = Addresses::default();

        let [a, b] = ["a", "b"].map(|name| addresses.assign(&key(name), None, PREFIX).unwrap());

        assert_ne!(a, b);
        assert_eq!(addresses.assign(&key("a"), None, PREFIX), Some(a));
    }

    #[test]
    fn an_address_in_the_status_is_kept_after_a_restart() {
        let known = Ipv4Addr::new(172, 18, 1, 142);
        let mut addresses = Addresses::default();

        assert_eq!(
            addresses.assign(&key("a"), Some(known), PREFIX),
            Some(known)
        );
        assert_ne!(
            addresses.assign(&key("b"), Some(known), PREFIX),
            Some(known)
        );
        let foreign = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_ne!(addresses.assign(&key("c"), foreign, PREFIX), foreign);
    }

    #[test]
    fn a_released_address_is_given_again_and_a_full_pool_gives_none() {
        let mut addresses = Addresses::default();
        let all: Vec<_> = RANGE
            .map(|host| {
                addresses
                    .assign(&key(&host.to_string()), None, PREFIX)
                    .unwrap()
            })
            .collect();

        assert_eq!(addresses.assign(&key("late"), None, PREFIX), None);
        addresses.release(&key("142"));
        assert_eq!(addresses.assign(&key("late"), None, PREFIX), Some(all[42]));
    }
}
