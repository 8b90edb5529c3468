"""The server of the bookings."""
