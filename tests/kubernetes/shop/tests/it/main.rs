//! Tests of all services as processes of this machine, with a real Redis.

mod fixture;

use fixture::{CARD, Shop};

#[test]
fn a_purchase_shows_which_pods_served_it() {
    let mut shop = Shop::start();
    let (mut session, redis) = (shop.session(), "redis-cart-0<");

    let home = session.get("/");
    session.post("/currency", "currency=USD");
    let product = session.get("/product/mug");
    session.post("/cart", "product_id=mug&quantity=2");
    session.post("/cart", "product_id=mug&quantity=1");
    let cart = session.get("/cart");
    let order = session.post("/cart/checkout", CARD);
    let emptied = session.get("/cart");

    assert_eq!(home.status, 200);
    assert!(home.body.contains("EUR 12.50") && home.body.contains("Advertisement"));
    assert!(product.body.contains("USD 13.50") && product.body.contains("You may also like"));
    // Three mugs, and 4.90 + 3 * 0.50 euros of shipping.
    assert!(cart.body.contains("3 x Enamel mug") && cart.body.contains("USD 47.41"));
    assert!(cart.body.contains(redis), "{}", cart.body);
    assert_eq!(order.status, 200);
    assert!(order.body.contains("data-order=") && order.body.contains("USD 47.41"));
    for service in [
        "cart",
        "currency",
        "email",
        "payment",
        "productcatalog",
        "shipping",
    ] {
        assert!(
            order.body.contains(&format!("{service}service-0<")),
            "{service}"
        );
    }
    assert!(order.body.contains(redis));
    assert!(emptied.body.contains("The cart is empty"));
    let email = shop.line_of("emailservice");
    assert!(
        email.ends_with(r#"confirmed to "someone@example.com""#),
        "{email}"
    );
}

#[test]
fn all_services_report_where_they_run() {
    let mut shop = Shop::start();

    let places = shop.session().json("/api/where");

    let places = places.as_object().unwrap();
    assert_eq!(places.len(), 11);
    for (service, place) in places {
        assert_eq!(place["pod"], format!("{service}-0"));
        assert_eq!(place["node"], "node-1");
    }
    assert_eq!(places["cartservice"]["cluster"], "local");
    assert_eq!(places["redis-cart"]["cluster"], "milan");

    shop.kill("paymentservice");
    let places = shop.session().json("/api/where");
    let error = places["paymentservice"]["error"].as_str().unwrap();
    assert!(
        error.contains("paymentservice") && error.contains("unreachable"),
        "{error}"
    );
    assert_eq!(places["frontend"]["pod"], "frontend-0");
}

#[test]
fn optional_services_may_be_unreachable() {
    let mut shop = Shop::start();
    for service in ["adservice", "recommendationservice", "emailservice"] {
        shop.kill(service);
    }
    let mut session = shop.session();

    let product = session.get("/product/mug");
    session.post("/cart", "product_id=mug&quantity=1");
    let order = session.post("/cart/checkout", CARD);

    assert_eq!(product.status, 200);
    assert!(product.body.contains("Add to cart"));
    for missing in [
        "No advertisement: adservice",
        "No recommendations: recommendationservice",
    ] {
        assert!(product.body.contains(missing), "{}", product.body);
    }
    assert_eq!(order.status, 200);
    assert!(
        order.body.contains("a step failed: emailservice"),
        "{}",
        order.body
    );
}

#[test]
fn an_error_names_the_unreachable_service() {
    let mut shop = Shop::start();
    let mut session = shop.session();
    session.post("/cart", "product_id=mug&quantity=1");

    // Checkout calls payment, so the front end sees the error of a nested call.
    shop.kill("paymentservice");
    let checkout = session.post("/cart/checkout", CARD);
    shop.kill("redis-cart");
    let redis = session.get("/cart");
    shop.kill("cartservice");
    let cart = session.get("/cart");

    for (response, service) in [
        (checkout, "paymentservice"),
        (redis, "redis-cart"),
        (cart, "cartservice"),
    ] {
        assert_eq!(response.status, 500);
        let error = response.body.split_once(r#"<p class="error">"#).unwrap().1;
        assert!(
            error.starts_with(&format!("{service} at 127.0.0.1:")),
            "{error}"
        );
        assert!(error.contains("is unreachable"), "{error}");
    }
    assert_eq!(session.get("/").status, 200);
}

#[test]
fn carts_are_available_again_after_redis_restarts() {
    let mut shop = Shop::start();
    let mut session = shop.session();
    session.post("/cart", "product_id=mug&quantity=1");

    shop.restart_redis();
    let cart = session.get("/cart");

    assert!(cart.body.contains("The cart is empty"), "{}", cart.body);
}

#[test]
fn invalid_input_is_refused_with_a_reason() {
    let shop = Shop::start();
    let mut session = shop.session();
    session.post("/cart", "product_id=mug&quantity=1");
    let card = CARD.replace("4111", "4112");
    let email = CARD.replace("%40", "");

    let cases = [
        (
            session.post("/cart/checkout", &card),
            400,
            "number of the credit card",
        ),
        (
            session.post("/cart/checkout", "email=a"),
            400,
            "no field &quot;address&quot;",
        ),
        (
            session.post("/cart", "product_id=mug&quantity=11"),
            400,
            "between 1 and 10",
        ),
        (
            session.post("/cart", "product_id=mug&quantity=-1"),
            400,
            "no number",
        ),
        (
            session.post("/cart", "product_id=%3Cb%3E&quantity=1"),
            404,
            "&lt;b&gt;",
        ),
        (session.post("/currency", "currency=XXX"), 400, "is unknown"),
        (session.get("/product/unknown"), 404, "no product"),
        (session.post("/cart/checkout", &email), 200, "has no @"),
        (
            session.post("/cart/checkout", CARD),
            400,
            "the cart is empty",
        ),
    ];

    for (response, status, reason) in cases {
        assert_eq!(response.status, status, "{reason}");
        assert!(
            response.body.contains(reason),
            "{reason}: {}",
            response.body
        );
    }
}

#[test]
fn the_load_generator_counts_failed_requests() {
    let mut shop = Shop::start();

    let (code, report) = shop.load(&["--rate=60", "--seconds=1"]);
    assert!(
        report.starts_with("requests=60 failed=0 purchases=10 "),
        "{report}"
    );
    assert_eq!(code, Some(0));

    shop.kill("shippingservice");
    let (code, report) = shop.load(&["--rate=60", "--seconds=1", "--max-failed=9"]);
    assert!(
        report.contains("failed 10: GET /cart: status 500"),
        "{report}"
    );
    assert_eq!(code, Some(1));
}
