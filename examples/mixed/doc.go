// Mixed plays a day of a service that owns servers, lends those that it does not
// need to training, and has them back before it does; it prints a table and draws
// the day.
//
//	go -C examples run ./mixed [-servers 16] [-hours 6] [-out mixed.svg]
//
// # Limits
//
// The day is squeezed into -hours, made up and simulated: a sine of requests, jobs that scale without
// loss, networks that take no time.
package main
