package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/namesrv"
)

//go:generate go test -run TestConfigDoc -rewrite .

var rewrite = flag.Bool("rewrite", false, "write docs/config.md anew")

const configDocHead = `# Configuration

This page is printed from the tables in broker/config_table.go and
namesrv/config_table.go by ` + "`go generate ./cmd/ringmq`" + `; a test fails when it is stale.

## How it is read

| point | rule |
|---|---|
| files | Java's .properties: ` + "`key=value`" + `, blanks around the ` + "`=`" + `, lines continued by a backslash, comments after ` + "`#`" + ` and ` + "`!`" + `. The same files as ` + "`mqbroker -c`" + ` and ` + "`mqnamesrv -c`" + ` take. Trailing blanks are cut off, nothing is expanded. UTF-8, else ISO 8859-1 |
| order | the file, then the environment (NAMESRV_ADDR), then flags; the later one wins, in a file the later line. A variable that overrides the file is warned of |
| one process | ` + "`ringmq server -c`" + ` takes a broker's file; keys for its NameServer carry the prefix ` + "`namesrv.`" + `. ` + "`--data`" + ` places what the file does not place |
| unknown key | one warning, with the nearest known name |
| bad value | the process does not start, and names file, line, key, what it got and what it wants |
| protection that does not exist | the process does not start: see "only … is accepted" below |
| to see it | ` + "`-p`" + ` prints every key, value, unit and origin, ` + "`-m`" + ` the important ones |
| run time | yes: read at each use, so an update acts at once. NameServers take updates by request 318 (mqadmin updateNamesrvConfig) and write the changed keys alone into their file; a broker's request 25 is not served yet |

A directory, its size keys and its kind belong together: never change a size key of an existing store.
`

// The page must be what the tables say.
func TestConfigDoc(t *testing.T) {
	const name = "../../docs/config.md"
	var page bytes.Buffer
	page.WriteString(configDocHead)
	page.WriteString("\n## Broker\n")
	if err := broker.ConfigTable.Markdown(&page); err != nil {
		t.Fatal(err)
	}
	page.WriteString("\n## NameServer\n")
	if err := namesrv.ConfigTable.Markdown(&page); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(name, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, page.Bytes()) {
		t.Errorf("%s is stale: run go generate ./cmd/ringmq", name)
	}
}
