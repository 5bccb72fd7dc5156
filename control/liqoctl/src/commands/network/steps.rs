//! The steps that connect two networks, in the order in which a command applies them.

mod cidrs;
mod client;
mod configuration;
mod connection;
mod gateway;
mod key;
mod server;
mod upstream;

pub(crate) use cidrs::AdvertisedCidrs;
pub(crate) use client::Client;
pub(crate) use configuration::PeerConfiguration;
pub(crate) use connection::Connected;
pub(crate) use gateway::Gateway;
pub(crate) use key::{GatewayKey, PeerKey};
pub(crate) use server::{Address, Server};
pub(crate) use upstream::{GatewayPod, check_template, has_templates};
