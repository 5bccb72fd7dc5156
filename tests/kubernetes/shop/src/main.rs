//! An online shop of ten services, for demos and tests of offloaded workloads.
//!
//! ```text
//! browser, loadgenerator --HTTP--> frontend --gRPC--> all services
//!     checkoutservice -> cart, product catalog, currency, shipping, payment, email
//!     recommendationservice -> product catalog       cartservice --RESP--> redis-cart
//! ```
//!
//! One program contains all services; the first argument selects one. Each reply names the pods
//! that served the request, and the front end shows them on each page. So a user sees which
//! services run in which cluster.
//!
//! A service finds another one by its name, such as `cartservice:7070`. An environment variable
//! such as `CARTSERVICE_ADDR` replaces this address.

#![forbid(unsafe_code)]

mod cart;
mod frontend;
mod load;
mod message;
mod money;
mod place;
mod random;
mod redis;
mod resp;
mod role;
mod rpc;
mod server;
mod service;

use clap::{Parser, Subcommand};
use role::Role;
use server::Server;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

/// A service of an online shop.
#[derive(Parser, Debug)]
struct Options {
    #[command(subcommand)]
    command: Command,

    /// The address to listen on. The default is all IPv4 addresses, with the port of the service.
    #[arg(long, env = "LISTEN")]
    listen: Option<SocketAddr>,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(flatten)]
    Serve(Role),
    /// Buys products through the front end, and reports failed requests and latencies.
    Loadgenerator(load::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let role = match options.command {
        Command::Serve(role) => role,
        Command::Loadgenerator(options) => return Ok(load::run(&options).await),
    };
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, role.port()));
    let server = Server::new(role)?;
    let router = if role == Role::Frontend {
        frontend::router(server.clients())
    } else {
        service::router(role, server)
    };
    server::serve(router, options.listen.unwrap_or(any)).await?;

    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        Options::command().debug_assert();
    }
}
