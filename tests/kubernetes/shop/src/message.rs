//! The RPCs of all services, and their messages as protocol buffers.

use crate::role::Role;
use crate::rpc::Rpc;
use prost::Message;

/// Declares procedures: name of the constant, service, method, types of request and reply.
macro_rules! procedures {
    ($($name:ident = $service:ident $method:literal ($request:ty) -> $reply:ty;)*) => {
        $(pub(crate) const $name: Rpc<$request, $reply> = Rpc::new(
            Role::$service,
            concat!("/shop.", stringify!($service), "/", $method),
        );)*
    };
}

procedures! {
    GET_ADS = AdService "GetAds" (Texts) -> Ad;
    ADD_ITEM = CartService "AddItem" (Cart) -> Empty;
    GET_CART = CartService "GetCart" (Text) -> Cart;
    EMPTY_CART = CartService "EmptyCart" (Text) -> Empty;
    PLACE_ORDER = CheckoutService "PlaceOrder" (Purchase) -> Order;
    CONVERT = CurrencyService "Convert" (Conversion) -> Amounts;
    GET_CURRENCIES = CurrencyService "GetSupportedCurrencies" (Empty) -> Texts;
    SEND_CONFIRMATION = EmailService "SendOrderConfirmation" (Confirmation) -> Empty;
    CHARGE = PaymentService "Charge" (Charge) -> Text;
    LIST_PRODUCTS = ProductCatalogService "ListProducts" (Empty) -> Products;
    GET_PRODUCT = ProductCatalogService "GetProduct" (Text) -> Product;
    LIST_RECOMMENDATIONS = RecommendationService "ListRecommendations" (Texts) -> Texts;
    GET_QUOTE = ShippingService "GetQuote" (Shipment) -> Money;
    SHIP_ORDER = ShippingService "ShipOrder" (Shipment) -> Text;
}

/// Returns the RPC of a service's health, which Kubernetes' probes use.
pub(crate) const fn health(role: Role) -> Rpc<Empty, Health> {
    Rpc::new(role, "/grpc.health.v1.Health/Check")
}

/// No data. It also parses the request of the health RPC, which names a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

/// The reply to a health check.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Health {
    /// 1 if the service is ready.
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

/// An identifier of a session, product, shipment or payment.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// Identifiers of products, categories of products, or codes of currencies.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub(crate) texts: Vec<String>,
}

/// An amount of money.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Money {
    /// An ISO 4217 code such as `EUR`.
    #[prost(string, tag = "1")]
    pub(crate) currency: String,
    /// The amount in hundredths of the currency's unit.
    #[prost(int64, tag = "2")]
    pub(crate) cents: i64,
}

/// Amounts, in the order of a [`Conversion`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Amounts {
    #[prost(message, repeated, tag = "1")]
    pub(crate) amounts: Vec<Money>,
}

/// Amounts to convert to another currency.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Conversion {
    #[prost(message, repeated, tag = "1")]
    pub(crate) amounts: Vec<Money>,
    #[prost(string, tag = "2")]
    pub(crate) currency: String,
}

/// A product of the catalog.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Product {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) description: String,
    #[prost(string, tag = "4")]
    pub(crate) category: String,
    /// The price of one piece.
    #[prost(message, optional, tag = "5")]
    pub(crate) price: Option<Money>,
}

/// Products of the catalog.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Products {
    #[prost(message, repeated, tag = "1")]
    pub(crate) products: Vec<Product>,
}

/// Pieces of a product.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Item {
    #[prost(string, tag = "1")]
    pub(crate) product_id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) quantity: u32,
}

/// The cart of a session, or items to add to it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cart {
    #[prost(string, tag = "1")]
    pub(crate) session: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) items: Vec<Item>,
}

/// Items to send to an address.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shipment {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) items: Vec<Item>,
}

/// A payment by credit card.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Charge {
    #[prost(message, optional, tag = "1")]
    pub(crate) amount: Option<Money>,
    #[prost(string, tag = "2")]
    pub(crate) card: String,
}

/// The data with which a user orders the content of a cart.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Purchase {
    #[prost(string, tag = "1")]
    pub(crate) session: String,
    #[prost(string, tag = "2")]
    pub(crate) currency: String,
    #[prost(string, tag = "3")]
    pub(crate) email: String,
    #[prost(string, tag = "4")]
    pub(crate) address: String,
    #[prost(string, tag = "5")]
    pub(crate) card: String,
}

/// A placed order.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Order {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) tracking_id: String,
    /// The amount that was charged.
    #[prost(message, optional, tag = "3")]
    pub(crate) total: Option<Money>,
    /// The reason for which a step after the payment failed; empty if all succeeded.
    #[prost(string, tag = "4")]
    pub(crate) warning: String,
}

/// An order to confirm by email.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Confirmation {
    #[prost(string, tag = "1")]
    pub(crate) email: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) order: Option<Order>,
}

/// An advertisement for a product.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ad {
    #[prost(string, tag = "1")]
    pub(crate) product_id: String,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
}
