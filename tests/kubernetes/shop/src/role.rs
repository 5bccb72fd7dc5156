//! The services: names, ports and addresses.

use std::env;
use std::fmt::{self, Display};
use std::time::Duration;

/// A service. Names and ports are those of the "Online Boutique" demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::Subcommand)]
#[command(rename_all = "lower")]
pub(crate) enum Role {
    /// Serves advertisements for categories of products.
    AdService,
    /// Stores carts in Redis.
    CartService,
    /// Places orders.
    CheckoutService,
    /// Converts amounts between currencies.
    CurrencyService,
    /// Confirms orders by email; it prints the message.
    EmailService,
    /// Serves the pages of the shop over HTTP.
    Frontend,
    /// Charges credit cards; it only checks their numbers.
    PaymentService,
    /// Serves the products of the shop.
    ProductCatalogService,
    /// Recommends products that are not in the cart.
    RecommendationService,
    /// Computes shipping costs, and ships orders.
    ShippingService,
}

use Role::{
    AdService, CartService, CheckoutService, CurrencyService, EmailService, Frontend,
    PaymentService, ProductCatalogService, RecommendationService, ShippingService,
};

impl Role {
    /// The services that speak gRPC.
    pub(crate) const GRPC: [Self; 9] = [
        AdService,
        CartService,
        CheckoutService,
        CurrencyService,
        EmailService,
        PaymentService,
        ProductCatalogService,
        RecommendationService,
        ShippingService,
    ];

    /// Returns the name of the Deployment and of the Service.
    pub(crate) fn name(self) -> &'static str {
        self.name_and_port().0
    }

    /// Returns the port on which the pods listen.
    pub(crate) fn port(self) -> u16 {
        self.name_and_port().1
    }

    fn name_and_port(self) -> (&'static str, u16) {
        match self {
            AdService => ("adservice", 9555),
            CartService => ("cartservice", 7070),
            CheckoutService => ("checkoutservice", 5050),
            CurrencyService => ("currencyservice", 7000),
            EmailService => ("emailservice", 8080),
            Frontend => ("frontend", 8080),
            PaymentService => ("paymentservice", 50051),
            ProductCatalogService => ("productcatalogservice", 3550),
            RecommendationService => ("recommendationservice", 8080),
            ShippingService => ("shippingservice", 50051),
        }
    }

    /// Returns the address at which other services reach this service.
    pub(crate) fn address(self) -> String {
        let service_port = if self == EmailService {
            5000
        } else {
            self.port()
        };

        address(self.name(), service_port)
    }

    /// Returns the time limit of a call. The limit of a service exceeds the limits of the services
    /// that it calls, so that an error names the service that did not reply.
    pub(crate) fn call_max(self) -> Duration {
        let seconds = match self {
            CheckoutService => 10,
            RecommendationService => 4,
            AdService
            | CartService
            | CurrencyService
            | EmailService
            | Frontend
            | PaymentService
            | ProductCatalogService
            | ShippingService => 2,
        };

        Duration::from_secs(seconds)
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the address of a service: the environment variable `<NAME>_ADDR`, or the service's name
/// and port.
pub(crate) fn address(name: &str, port: u16) -> String {
    let variable = name.replace('-', "_").to_uppercase() + "_ADDR";

    env::var(variable).unwrap_or_else(|_| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = include_str!("../../manifests/shop.yaml");

    #[test]
    fn the_manifest_has_the_ports_of_all_services() {
        for role in Role::GRPC {
            let (service, port) = (role.address(), role.port());
            let (name, service_port) = service.split_once(':').unwrap();
            let deployment = format!(
                "command: [shop, {name}]\n{}ports: [{{containerPort: {port}}}]",
                identity()
            );
            let service = format!(
                "selector: {{app: {name}}}\n  ports: [{{port: {service_port}, targetPort: {port}}}]"
            );

            assert!(MANIFEST.contains(&deployment), "{deployment}");
            assert!(MANIFEST.contains(&service), "{service}");
            let probe = format!("Probe: {{grpc: {{port: {port}}},");
            assert!(MANIFEST.matches(&probe).count() >= 2, "{name}");
        }
    }

    /// Returns the lines from which [`crate::place::Place`] is read.
    fn identity() -> &'static str {
        let start = MANIFEST.find("          env:").unwrap();
        let end = MANIFEST.find("ports: [{containerPort").unwrap();
        &MANIFEST[start..end]
    }
}
