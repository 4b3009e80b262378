// Package config answers: what is this process configured to do, and who said so?
//
// A room declares one typed Config struct, whose fields carry the property
// name in a `key` tag, and one Table with a row for every property name that
// RocketMQ knows in that place. The table joins the two: it sets the fields
// from settings (lines of a .properties file, environment, flags, in the order
// given, the last one wins), refuses values that do not parse, are out of
// bounds or ask for something that does not exist here, and prints the
// configuration, its origins and its documentation.
//
// Nothing here has goroutines or state of its own; a Table is immutable after
// New and may be used from any goroutine. A Config is plain data: who changes
// it at run time works on a copy (Table.Update) and publishes that.
package config
