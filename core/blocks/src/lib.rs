//! Blocks with their content, and the parts of a storage transaction that are made of them. Plans (`braid_layout`) compute them, messages
//! (`braid_wire`) carry them, and devices read and write them.
//!
//! | module | what |
//! | --- | --- |
//! | `piece` | blocks with their content or what a read is to return of them; linkage |
//! | `column` | what one device does in a write that devices execute together |

mod column;
mod piece;

pub use column::{Base, Column, ParityRows, Sending, Sent};
pub use piece::{Content, Linkage, Piece, Want};
