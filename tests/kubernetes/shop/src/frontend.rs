//! The front end, which renders the pages of the shop.
//!
//! Pages are complete without the advertisement and the recommendations. All other services are
//! required: without one of them, the page is an error that names the service.

mod html;
mod visit;

use crate::cart::{lines, total};
use crate::message::{
    ADD_ITEM, Cart, EMPTY_CART, GET_CART, GET_PRODUCT, GET_QUOTE, Item, PLACE_ORDER, Purchase,
    Shipment, Text,
};
use crate::place::Place;
use crate::redis;
use crate::role::Role;
use crate::rpc::{Calls, Clients};
use crate::{message, random};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::Status;
use visit::{Reply, Visit};

/// The maximum size of a form.
const FORM_MAX: usize = 16 << 10;

/// The fields of a submitted form.
type Fields = BTreeMap<String, String>;

/// Returns the routes of the front end.
pub(crate) fn router(clients: Clients) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/product/{id}", get(product))
        .route("/cart", get(cart).post(add))
        .route("/cart/empty", post(empty))
        .route("/cart/checkout", post(checkout))
        .route("/currency", post(choose_currency))
        .route("/api/where", get(places))
        .route("/_healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .with_state(clients)
}

async fn home(visit: Visit) -> Response {
    let page = async {
        let (products, ad) = tokio::join!(visit.products(), visit.ad("home"));
        Ok(Reply::page("Products", html::products(&products?) + &ad))
    };
    visit.show(page).await
}

async fn product(visit: Visit, Path(id): Path<String>) -> Response {
    let page = async {
        let products = visit.products().await?;
        let Some(product) = products.iter().find(|product| product.id == id) else {
            return Err(Status::not_found(format!("the shop has no product {id:?}")));
        };
        let known = vec![id.clone()];
        let (recommendations, ad) = tokio::join!(
            visit.recommendations(known, &products),
            visit.ad(&product.category)
        );
        let content = html::product(product) + &recommendations + &ad;
        Ok(Reply::page(&product.name, content))
    };
    visit.show(page).await
}

async fn cart(visit: Visit) -> Response {
    let page = async {
        let cart = visit.calls.call(GET_CART, visit.session());
        let (products, cart) = tokio::join!(visit.products(), cart);
        let (products, cart) = (products?, cart?);
        if cart.items.is_empty() {
            return Ok(Reply::page("Cart", html::note("The cart is empty.")));
        }
        let lines = lines(&cart.items, &products)?;
        let known = cart.items.iter().map(|item| item.product_id.clone());
        let known = known.collect();
        let shipment = Shipment {
            address: String::new(),
            items: cart.items,
        };
        let quote = visit.calls.call(GET_QUOTE, shipment).await?;
        let shipping = visit.convert(vec![quote]).await?.pop().unwrap_or_default();
        let total = total(&lines, &shipping)?;
        let recommendations = visit.recommendations(known, &products).await;
        let content = html::cart(&lines, &shipping, &total) + &recommendations;
        Ok(Reply::page("Cart", content))
    };
    visit.show(page).await
}

async fn add(visit: Visit, Form(fields): Form<Fields>) -> Response {
    let page = async {
        let quantity = field(&fields, "quantity")?.parse();
        let item = Item {
            product_id: field(&fields, "product_id")?.to_owned(),
            quantity: quantity
                .map_err(|_| Status::invalid_argument("the quantity is no number"))?,
        };
        let id = Text {
            text: item.product_id.clone(),
        };
        visit.calls.call(GET_PRODUCT, id).await?;
        let cart = Cart {
            session: visit.session().text,
            items: vec![item],
        };
        visit.calls.call(ADD_ITEM, cart).await?;
        Ok(Reply::Redirect("/cart"))
    };
    visit.show(page).await
}

async fn empty(visit: Visit) -> Response {
    let page = async {
        visit.calls.call(EMPTY_CART, visit.session()).await?;
        Ok(Reply::Redirect("/"))
    };
    visit.show(page).await
}

async fn checkout(visit: Visit, Form(fields): Form<Fields>) -> Response {
    let page = async {
        let purchase = Purchase {
            session: visit.session().text,
            currency: visit.currency().to_owned(),
            email: field(&fields, "email")?.to_owned(),
            address: field(&fields, "address")?.to_owned(),
            card: field(&fields, "card")?.to_owned(),
        };
        let order = visit.calls.call(PLACE_ORDER, purchase).await?;
        Ok(Reply::page("Order", html::order(&order)))
    };
    visit.show(page).await
}

async fn choose_currency(mut visit: Visit, Form(fields): Form<Fields>) -> Response {
    let chosen = field(&fields, "currency").and_then(|code| visit.choose(code));
    visit
        .show(async { chosen.map(|()| Reply::Redirect("/")) })
        .await
}

fn field<'a>(fields: &'a Fields, name: &str) -> Result<&'a str, Status> {
    let field = fields.get(name);
    let error = || Status::invalid_argument(format!("the form has no field {name:?}"));

    field.map(String::as_str).ok_or_else(error)
}

/// Calls each service, and returns where it runs.
async fn places(State(clients): State<Clients>) -> Json<Value> {
    let calls = Arc::new(Calls::new(clients));
    let mut checks = JoinSet::new();
    for role in Role::GRPC {
        let calls = Arc::clone(&calls);
        checks.spawn(async move { calls.call(message::health(role), message::Empty {}).await });
    }
    let session = Text { text: random::id() };
    // A cart is read from Redis, so the reply also names the place of Redis. Errors are recorded.
    let cart = calls.call(GET_CART, session).await;
    checks.join_all().await;
    let mut served = calls.served();
    if let Err(status) = cart {
        let error = Err(status.message().to_owned());
        served.entry(redis::NAME.to_owned()).or_insert(error);
    }

    let own = Ok(Place::of_this_process());
    served.insert(Role::Frontend.name().to_owned(), own);
    let place = |place: Result<Place, String>| match place {
        Ok(place) => json!({"pod": place.pod, "node": place.node, "cluster": place.cluster}),
        Err(error) => json!({"error": error}),
    };
    let served = served.into_iter();

    Json(served.map(|(service, it)| (service, place(it))).collect())
}
