//! The products of the shop.

use crate::message::{Empty, Money, Product, Products, Text};
use crate::rpc::Calls;
use std::sync::Arc;
use tonic::Status;

/// Identifier, name, category, price in cents of a euro, and description of each product.
const PRODUCTS: &str = include_str!("products.txt");

/// Returns all products.
pub(super) async fn list(_: Arc<Calls>, _: Empty) -> Result<Products, Status> {
    Ok(Products {
        products: products().collect(),
    })
}

/// Returns one product.
pub(super) async fn get(_: Arc<Calls>, id: Text) -> Result<Product, Status> {
    let product = products().find(|product| product.id == id.text);

    product.ok_or_else(|| Status::not_found(format!("the shop has no product {:?}", id.text)))
}

fn products() -> impl Iterator<Item = Product> {
    PRODUCTS.lines().filter_map(|line| {
        let mut fields = line.split('|');
        let mut field = || fields.next().map(str::to_owned);

        Some(Product {
            id: field()?,
            name: field()?,
            category: field()?,
            price: Some(Money::new("EUR", field()?.parse().ok()?)),
            description: field()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_product() {
        assert_eq!(products().count(), PRODUCTS.lines().count());
        assert_eq!(products().filter(|it| it.id == "mug").count(), 1);
    }
}
