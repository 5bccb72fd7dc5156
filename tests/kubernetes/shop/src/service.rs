//! The services that speak gRPC.

mod cart;
mod catalog;
mod checkout;
mod payment;

use crate::message::{
    ADD_ITEM, Ad, Amounts, CHARGE, CONVERT, Confirmation, Conversion, EMPTY_CART, Empty, GET_ADS,
    GET_CART, GET_CURRENCIES, GET_PRODUCT, GET_QUOTE, LIST_PRODUCTS, LIST_RECOMMENDATIONS, Money,
    PLACE_ORDER, SEND_CONFIRMATION, SHIP_ORDER, Shipment, Text, Texts,
};
use crate::role::Role;
use crate::rpc::Calls;
use crate::server::Server;
use crate::{cart as arithmetic, money, random};
use axum::Router;
use std::sync::Arc;
use tonic::Status;

/// Returns the routes of a service. The front end has none.
pub(crate) fn router(role: Role, server: Server) -> Router {
    let server = match role {
        Role::AdService => server.on(GET_ADS, ads),
        Role::CartService => server
            .on(ADD_ITEM, cart::add)
            .on(GET_CART, cart::get)
            .on(EMPTY_CART, cart::empty),
        Role::CheckoutService => server.on(PLACE_ORDER, checkout::place_order),
        Role::CurrencyService => server.on(CONVERT, convert).on(GET_CURRENCIES, currencies),
        Role::EmailService => server.on(SEND_CONFIRMATION, confirm),
        Role::Frontend => server,
        Role::PaymentService => server.on(CHARGE, payment::charge),
        Role::ProductCatalogService => server
            .on(LIST_PRODUCTS, catalog::list)
            .on(GET_PRODUCT, catalog::get),
        Role::RecommendationService => server.on(LIST_RECOMMENDATIONS, recommend),
        Role::ShippingService => server.on(GET_QUOTE, quote).on(SHIP_ORDER, ship),
    };

    server.into_router()
}

/// Advertises a product of the first category that has an advertisement.
async fn ads(_: Arc<Calls>, categories: Texts) -> Result<Ad, Status> {
    const ADS: [(&str, &str, &str); 3] = [
        ("kitchen", "board", "Breakfast in bed needs a board."),
        ("home", "blanket", "Cold data centre? Take a blanket."),
        ("office", "pen", "Sign your next peering in style."),
    ];
    let categories = categories.texts.iter();
    let found = categories.filter_map(|name| ADS.iter().find(|ad| ad.0 == name));
    let (_, id, text) = found.chain(&ADS).next().expect("the list is not empty");

    Ok(Ad {
        product_id: (*id).to_owned(),
        text: (*text).to_owned(),
    })
}

async fn convert(_: Arc<Calls>, conversion: Conversion) -> Result<Amounts, Status> {
    let amounts = conversion.amounts.iter();
    let converted = amounts.map(|amount| amount.convert(&conversion.currency));

    Ok(Amounts {
        amounts: converted.collect::<Result<_, _>>()?,
    })
}

async fn currencies(_: Arc<Calls>, _: Empty) -> Result<Texts, Status> {
    Ok(Texts {
        texts: money::codes().map(str::to_owned).collect(),
    })
}

async fn confirm(_: Arc<Calls>, confirmation: Confirmation) -> Result<Empty, Status> {
    if !confirmation.email.contains('@') {
        return Err(Status::invalid_argument("the email address has no @"));
    }
    let order = confirmation.order.unwrap_or_default();
    // `Debug` escapes control characters of the user's input.
    println!("order {:?} confirmed to {:?}", order.id, confirmation.email);

    Ok(Empty {})
}

/// Recommends four products that are not in the request.
async fn recommend(calls: Arc<Calls>, known: Texts) -> Result<Texts, Status> {
    let catalog = calls.call(LIST_PRODUCTS, Empty {}).await?;
    let ids = catalog.products.into_iter().map(|product| product.id);

    Ok(Texts {
        texts: ids.filter(|id| !known.texts.contains(id)).take(4).collect(),
    })
}

/// Returns the shipping cost: 4.90 euros, and 50 cents for each piece.
async fn quote(_: Arc<Calls>, shipment: Shipment) -> Result<Money, Status> {
    let pieces = arithmetic::pieces(&shipment.items);
    let pieces = u32::try_from(pieces).map_err(|_| money::MoneyError::Overflow)?;

    Ok(Money::new("EUR", 490).plus(&Money::new("EUR", 50).times(pieces)?)?)
}

async fn ship(_: Arc<Calls>, shipment: Shipment) -> Result<Text, Status> {
    if shipment.address.trim().is_empty() {
        return Err(Status::invalid_argument("the address is empty"));
    }

    Ok(Text { text: random::id() })
}
