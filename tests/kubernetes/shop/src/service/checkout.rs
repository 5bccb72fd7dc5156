//! Orders, for which six other services are called.

use crate::cart::{lines, total};
use crate::message::{
    CHARGE, CONVERT, Charge, Confirmation, Conversion, EMPTY_CART, Empty, GET_CART, GET_QUOTE,
    LIST_PRODUCTS, Order, Purchase, SEND_CONFIRMATION, SHIP_ORDER, Shipment, Text,
};
use crate::random;
use crate::rpc::Calls;
use std::sync::Arc;
use tonic::Status;

/// Orders the content of a cart.
pub(super) async fn place_order(calls: Arc<Calls>, purchase: Purchase) -> Result<Order, Status> {
    let session = Text {
        text: purchase.session,
    };
    let cart = calls.call(GET_CART, session.clone()).await?;
    if cart.items.is_empty() {
        return Err(Status::failed_precondition("the cart is empty"));
    }
    let shipment = Shipment {
        address: purchase.address,
        items: cart.items,
    };
    let shipping = calls.call(GET_QUOTE, shipment.clone()).await?;
    let catalog = calls.call(LIST_PRODUCTS, Empty {}).await?;

    // Each price is converted before it is multiplied, as on the pages of the shop.
    let mut products = catalog.products;
    let prices = products.iter().flat_map(|product| product.price.clone());
    let conversion = Conversion {
        amounts: prices.chain([shipping]).collect(),
        currency: purchase.currency,
    };
    let mut amounts = calls.call(CONVERT, conversion).await?.amounts;
    let shipping = amounts.pop().unwrap_or_default();
    for (product, price) in products.iter_mut().zip(amounts) {
        product.price = Some(price);
    }
    let total = total(&lines(&shipment.items, &products)?, &shipping)?;

    let charge = Charge {
        amount: Some(total.clone()),
        card: purchase.card,
    };
    calls.call(CHARGE, charge).await?;
    let tracking = calls.call(SHIP_ORDER, shipment).await?;
    let mut order = Order {
        id: random::id(),
        tracking_id: tracking.text,
        total: Some(total),
        warning: String::new(),
    };

    // The order is paid. So a failure from here on does not revoke it.
    let confirmation = Confirmation {
        email: purchase.email,
        order: Some(order.clone()),
    };
    let emptied = calls.call(EMPTY_CART, session).await;
    let confirmed = calls.call(SEND_CONFIRMATION, confirmation).await;
    if let Err(status) = emptied.and(confirmed) {
        order.warning = status.message().to_owned();
    }

    Ok(order)
}
