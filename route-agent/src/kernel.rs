//! Reads the agent's kernel objects, and applies single changes to them.
//!
//! The agent recognises its own objects by marks: the name and alias of the device, the number of
//! the routing table, the priority of the policy rule, the routing protocol number, the range of
//! nexthop ids, and the name of the nft table. This module neither reports nor changes objects
//! without these marks.

use crate::cards::Card;
use crate::diff::Op;
use crate::gro::Flow;
use crate::ruleset::Ruleset;
use crate::settings::Settings;
use crate::state::State;
use crate::underlay::{Destinations, Underlay};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

mod conntrack;
mod ethtool;
pub(crate) mod events;
pub(crate) mod gro;
mod link;
mod netlink;
mod nexthop;
pub(crate) mod nft;
mod route;
mod rule;
mod underlay;

pub(crate) use netlink::Error as NetlinkError;
pub(crate) use nft::Error as NftError;

/// A request to the kernel failed, or found an object of another program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A netlink request failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),

    /// A call of the program `nft` failed.
    #[error(transparent)]
    Nft(#[from] NftError),

    /// A device without the agent's marks has the overlay device's name.
    #[error(
        "a {kind} device named {name} exists, which another program has created: \
         remove it (ip link delete {name}) or rename it"
    )]
    ForeignDevice {
        name: String,
        /// Kind as in `ip -d link`, for example `dummy` or `vxlan`.
        kind: String,
    },
}

/// Access to the kernel by netlink and `nft`, in the network namespace in which the value was
/// created.
pub(crate) struct Kernel {
    settings: Settings,
    route: rtnetlink::Handle,
    nexthop: nexthop::Handle,
    nft: nft::Nft,
    conntrack: conntrack::Handle,
    ethtool: ethtool::Handle,
}

impl Kernel {
    /// Opens the netlink sockets. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Netlink`] if the kernel refuses to open a socket.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            settings,
            route: netlink::open()?,
            nexthop: nexthop::Handle::open()?,
            nft: nft::Nft::default(),
            conntrack: conntrack::Handle::open()?,
            ethtool: ethtool::Handle::open()?,
        })
    }

    /// Returns all kernel objects of the agent.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if an object cannot be read, or another program's device has the overlay
    /// device's name.
    pub(crate) async fn observe(&mut self) -> Result<State, Error> {
        let mut state = self.observe_netlink().await?;
        state.filter = self.observe_filter().await?;

        Ok(state)
    }

    /// Returns all kernel objects of the agent except for the nft table.
    ///
    /// # Errors
    ///
    /// See [`Kernel::observe`].
    pub(crate) async fn observe_netlink(&self) -> Result<State, Error> {
        let mut state = State::default();
        self.observe_device(&mut state).await?;
        self.observe_routing(&mut state).await?;

        Ok(state)
    }

    /// Returns the agent's nft table, `None` if it does not exist. Runs the program `nft`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Nft`] if `nft` fails.
    pub(crate) async fn observe_filter(&self) -> Result<Option<Ruleset>, Error> {
        Ok(self.nft.observe().await?)
    }

    /// Returns those kernel objects of the agent that can be read, and adds failures to `errors`.
    pub(crate) async fn observe_best_effort(&self, errors: &mut Vec<Error>) -> State {
        let mut state = State::default();
        errors.extend(self.observe_device(&mut state).await.err());
        errors.extend(self.observe_routing(&mut state).await.err());
        match self.observe_filter().await {
            Ok(filter) => state.filter = filter,
            Err(error) => errors.push(error),
        }

        state
    }

    async fn observe_device(&self, state: &mut State) -> Result<(), Error> {
        if let Some(link) = link::observe(&self.route, &self.settings).await? {
            state.device = Some(link.device);
            state.addresses = link::addresses(&self.route, link.index).await?;
        }

        Ok(())
    }

    async fn observe_routing(&self, state: &mut State) -> Result<(), Error> {
        state.rule = rule::observe(&self.route, &self.settings).await?;
        self.nexthop.observe(&self.settings, state).await?;
        route::observe(&self.route, &self.settings, state).await?;

        Ok(())
    }

    /// Applies one change to the kernel, given the state `observed` before the change.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses the change.
    pub(crate) async fn apply(&mut self, op: &Op, observed: &State) -> Result<(), Error> {
        let (handle, settings) = (&self.route, &self.settings);
        match op {
            Op::AddUnreachable(dst) => route::add_unreachable(handle, settings, *dst).await?,
            Op::DeleteUnreachable(dst) => route::delete_unreachable(handle, settings, *dst).await?,
            Op::SetRoute(dst, to) => route::set(handle, settings, *dst, *to).await?,
            Op::DeleteRoute(dst) => route::delete(handle, settings, *dst).await?,
            Op::AddRule => rule::add(handle, settings).await?,
            Op::DeleteRule => rule::delete(handle, settings).await?,
            Op::CreateDevice(device) => link::create(handle, settings, device).await?,
            Op::SetDevice(device) => link::set(handle, settings, device).await?,
            Op::DeleteDevice => link::delete(handle, settings).await?,
            Op::AddAddress(address) => link::add_address(handle, settings, *address).await?,
            Op::DeleteAddress(address) => link::delete_address(handle, settings, *address).await?,
            Op::SetHop(id, hop) => {
                let device = link::index(handle, settings).await?;
                let replace = observed.hops.contains_key(id);
                self.nexthop
                    .set_hop(settings, *id, hop, device, replace)
                    .await?;
            }
            Op::SetGroup(id, members) => {
                let replace = observed.groups.contains_key(id);
                self.nexthop
                    .set_group(settings, *id, members, replace)
                    .await?;
            }
            Op::DeleteGroup(id) | Op::DeleteHop(id) => self.nexthop.delete(*id).await?,
            Op::SetFilter(ruleset) => {
                let former = observed.filter.as_ref();
                self.nft.set(ruleset, former).await?;
                let former = former.map(Ruleset::mapped).unwrap_or_default();
                let present = ruleset.mapped();
                self.conntrack.forget(&(&former ^ &present), &present);
            }
            Op::ChangeFilter(changes) => {
                self.nft.change(changes, observed.filter.as_ref()).await?;
                let (removed, added) = (changes.mapped(false), changes.mapped(true));
                self.conntrack.forget(&(&removed | &added), &added);
            }
            Op::DeleteFilter => {
                self.nft.delete().await?;
                let former = observed.filter.as_ref().map(Ruleset::mapped);
                let former = former.unwrap_or_default();
                // The process ends soon.
                let _ = self.conntrack.forget(&former, &BTreeSet::new()).await;
            }
        }

        Ok(())
    }

    /// Returns the devices through which the node has routes to `destinations`.
    pub(crate) async fn observe_underlay(&self, destinations: &Destinations) -> Underlay {
        underlay::observe(&self.route, destinations).await
    }

    /// Returns a future with the UDP flows from and to `addresses` in connection tracking.
    pub(crate) fn flows(
        &self,
        addresses: Vec<Ipv4Addr>,
    ) -> impl Future<Output = Result<Vec<Flow>, NetlinkError>> + Send + use<> {
        let conntrack = self.conntrack.clone();

        async move { conntrack.flows(addresses).await }
    }

    /// Returns the devices with the features that they lack. A device whose features cannot be read is left out.
    pub(crate) async fn cards(&mut self, devices: &BTreeSet<String>) -> Vec<Card> {
        let mut cards = Vec::new();
        for device in devices {
            match self.ethtool.features(device).await {
                Ok(active) => cards.push(Card::new(device.clone(), &active)),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(error, device, "the features of a card are unknown");
                }
            }
        }

        cards
    }

    /// Returns whether `address` is assigned to a device in this network namespace.
    pub(crate) async fn is_local(&self, address: Ipv4Addr) -> bool {
        route::is_local(&self.route, address).await
    }
}

/// The ruleset that was passed to `nft`, and the form in which `nft` lists it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Accepted {
    desired: Ruleset,
    listed: Ruleset,
}

#[cfg(test)]
mod tests;
