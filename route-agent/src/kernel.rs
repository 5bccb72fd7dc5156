//! Observes our kernel state and applies single changes; makes no decisions.
//!
//! Objects without our marks are neither reported nor changed.

use crate::diff::Op;
use crate::ruleset::Ruleset;
use crate::settings::Settings;
use crate::state::State;
use crate::underlay::{Destinations, Underlay};
use std::net::Ipv4Addr;

pub(crate) mod events;
mod link;
mod netlink;
mod nexthop;
pub(crate) mod nft;
mod route;
mod rule;
mod underlay;

pub(crate) use netlink::Error as NetlinkError;
pub(crate) use nft::Error as NftError;

/// A request to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A netlink request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),

    /// A call of `nft`.
    #[error(transparent)]
    Nft(#[from] NftError),

    /// The overlay device's name is taken by a device without our marks.
    #[error(
        "a {kind} device named {name} exists and is not ours: \
         remove it (ip link delete {name}) or rename it"
    )]
    ForeignDevice {
        name: String,
        /// As `ip -d link` shows it: `dummy`, `vxlan`, ..
        kind: String,
    },
}

/// Sockets to the kernel of the network namespace in which they were opened.
pub(crate) struct Kernel {
    settings: Settings,
    route: rtnetlink::Handle,
    nexthop: nexthop::Handle,
    nft: nft::Nft,
}

impl Kernel {
    /// Opens the sockets; must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Netlink`] if the kernel refuses one.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            settings,
            route: netlink::open()?,
            nexthop: nexthop::Handle::open()?,
            nft: nft::Nft::default(),
        })
    }

    /// Returns all our state.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if a part cannot be read, or a foreign device has our name.
    pub(crate) async fn observe(&mut self) -> Result<State, Error> {
        let mut state = self.observe_netlink().await?;
        state.filter = self.observe_filter().await?;

        Ok(state)
    }

    /// Returns all our state but the nft table.
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

    /// Returns our nft table; starts a process.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Nft`] if `nft` fails.
    pub(crate) async fn observe_filter(&self) -> Result<Option<Ruleset>, Error> {
        Ok(self.nft.observe().await?)
    }

    /// Returns the parts of our state that can be read, and adds failures to `errors`.
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

    /// Applies one change; `observed` is the state before it.
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
                self.nft.set(ruleset, observed.filter.as_ref()).await?;
            }
            Op::DeleteFilter => self.nft.delete().await?,
        }

        Ok(())
    }

    /// Returns the devices through which the node reaches `destinations`.
    pub(crate) async fn observe_underlay(&self, destinations: &Destinations) -> Underlay {
        underlay::observe(&self.route, destinations).await
    }

    /// Returns whether `address` is assigned in this network namespace.
    pub(crate) async fn is_local(&self, address: Ipv4Addr) -> bool {
        route::is_local(&self.route, address).await
    }
}

/// A table that `nft` lists as `listed` after it has accepted `desired`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Accepted {
    desired: Ruleset,
    listed: Ruleset,
}

#[cfg(test)]
mod tests;
