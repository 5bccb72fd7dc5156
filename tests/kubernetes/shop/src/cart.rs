//! Arithmetic of carts.

use crate::message::{Item, Money, Product};
use crate::money::MoneyError;
use tonic::Status;

/// Products of a cart with their prices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// The product, with the price of one piece.
    pub(crate) product: Product,
    /// The number of pieces.
    pub(crate) quantity: u32,
    /// The price of all pieces.
    pub(crate) price: Money,
}

/// Returns the lines of a cart.
///
/// # Errors
///
/// Returns an error if a product is not in `products`, or if an amount is too large.
pub(crate) fn lines(items: &[Item], products: &[Product]) -> Result<Vec<Line>, Status> {
    let line = |item: &Item| {
        let id = &item.product_id;
        let product = products.iter().find(|product| product.id == *id);
        let product =
            product.ok_or_else(|| Status::not_found(format!("the shop has no product {id:?}")))?;
        let price = product.price.clone().unwrap_or_default();

        Ok(Line {
            product: product.clone(),
            quantity: item.quantity,
            price: price.times(item.quantity)?,
        })
    };

    items.iter().map(line).collect()
}

/// Returns the sum of all lines and the shipping cost, which determines the currency.
///
/// # Errors
///
/// Returns an error if a line has another currency, or if the sum is too large.
pub(crate) fn total(lines: &[Line], shipping: &Money) -> Result<Money, MoneyError> {
    lines
        .iter()
        .try_fold(shipping.clone(), |sum, line| sum.plus(&line.price))
}

/// Returns the number of pieces in a cart.
pub(crate) fn pieces(items: &[Item]) -> u64 {
    items.iter().map(|item| u64::from(item.quantity)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn the_total_includes_quantities_and_shipping() {
        let items = [item("mug", 3), item("pen", 1)];
        let products = [product("pen", 250), product("mug", 1000)];

        let lines = lines(&items, &products).unwrap();

        assert_eq!(lines[0].price, Money::new("EUR", 3000));
        let total = total(&lines, &Money::new("EUR", 490)).unwrap();
        assert_eq!(total, Money::new("EUR", 3740));
        assert_eq!(pieces(&items), 4);
    }

    #[test]
    fn unknown_products_and_large_amounts_are_errors() {
        let products = [product("mug", i64::MAX / 2)];

        let unknown = lines(&[item("pen", 1)], &products).unwrap_err();
        let large = lines(&[item("mug", 3)], &products).unwrap_err();

        assert_eq!(unknown.code(), Code::NotFound);
        assert_eq!(large.code(), Code::InvalidArgument);
    }

    #[test]
    fn lines_of_another_currency_are_not_added() {
        let lines = lines(&[item("mug", 1)], &[product("mug", 100)]).unwrap();

        assert!(total(&lines, &Money::new("USD", 0)).is_err());
    }

    fn item(id: &str, quantity: u32) -> Item {
        Item {
            product_id: id.to_owned(),
            quantity,
        }
    }

    fn product(id: &str, cents: i64) -> Product {
        Product {
            id: id.to_owned(),
            price: Some(Money::new("EUR", cents)),
            ..Product::default()
        }
    }
}
