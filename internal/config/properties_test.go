package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // line:key=value
	}{
		{"plain", "a=1\nb=2\n", []string{"1:a=1", "2:b=2"}},
		{"spaces around =", "namesrvAddr = 192.168.1.100:9876;192.168.1.101:9876\n", []string{"1:namesrvAddr=192.168.1.100:9876;192.168.1.101:9876"}},
		{"trailing blanks are cut", "fileReservedTime=48 \t\nb=x\f\n", []string{"1:fileReservedTime=48", "2:b=x"}},
		{"inner blanks stay", "messageDelayLevel = 1s 5s  10s\n", []string{"1:messageDelayLevel=1s 5s  10s"}},
		{"colon and blank separate", "a:1\nb 2\nc\n", []string{"1:a=1", "2:b=2", "3:c="}},
		{"value with =", "a=b=c:d\n", []string{"1:a=b=c:d"}},
		{"comments", "# a=1\n  ! b=2\n\n\t# c\nd=#4\n", []string{"5:d=#4"}},
		{"continuation", "a = x\\\n   y\\\r\n\tz\nb=2", []string{"1:a=xyz", "4:b=2"}},
		{"continuation of a comment-like line", "a=1\\\n#2\nb=3", []string{"1:a=1#2", "3:b=3"}},
		{"even backslashes do not continue", "a=x\\\\\nb=2", []string{`1:a=x\`, "2:b=2"}},
		{"only a backslash", "\\\n\na=1", []string{"3:a=1"}},
		{"ends in a backslash", "a=1\\", []string{"1:a=1"}},
		{"escapes", `a\ b=c\td\u4e2d\:`, []string{"1:a b=c\td中:"}},
		{"carriage returns", "a=1\rb=2\r\nc=3", []string{"1:a=1", "2:b=2", "3:c=3"}},
		{"byte order mark", "\xef\xbb\xbfa=1", []string{"1:a=1"}},
		{"not UTF-8 is ISO 8859-1", "a=\xe9", []string{"1:a=é"}},
		{"nothing is expanded", "a=${HOME}\nb=${a}", []string{"1:a=${HOME}", "2:b=${a}"}},
		{"repeated keys in order", "a=1\na=2", []string{"1:a=1", "2:a=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, err := Parse([]byte(c.text), Origin{Kind: FromFile, Name: "f"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range settings {
				got = append(got, strings.TrimPrefix(s.Origin.String(), "f:")+":"+s.Key+"="+s.Value)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("settings (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"a=1\nb=\\u12zz\n", "a=1\n = x", "a=1\n:"} {
		_, err := Parse([]byte(text), Origin{Kind: FromFile, Name: "broker.conf"})
		if err == nil || !strings.Contains(err.Error(), "broker.conf:2: not a property line") {
			t.Errorf("%q: got %v, want an error that names broker.conf:2", text, err)
		}
	}
}

func TestEdit(t *testing.T) {
	old := "# my broker\nbrokerName = a\n\n# how long\nfileReservedTime=48\nlist=1,\\\n  2\n\nfileReservedTime=72\nlast=1"
	got, err := Edit([]byte(old), []Setting{{Key: "fileReservedTime", Value: "24"}, {Key: "list", Value: "3"}, {Key: "path", Value: ` C:\x`}})
	if err != nil {
		t.Fatal(err)
	}
	want := "# my broker\nbrokerName = a\n\n# how long\nlist=3\n\nfileReservedTime=24\nlast=1\npath=\\ C:\\\\x\n"
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("edited (-want +got):\n%s", d)
	}
	again, err := Edit(got, []Setting{{Key: "path", Value: ` C:\x`}})
	if err != nil || string(again) != string(got) {
		t.Errorf("editing in the same value changed the file: %v\n%s", err, again)
	}
}

// What Edit wrote, Parse reads back; everything else stays.
func FuzzEdit(f *testing.F) {
	f.Add("a=1\nb=2\\\n 3\n", "a", "x y")
	f.Add("# c\n a : 1", "k:e=y", " \\ t\n")
	f.Fuzz(func(t *testing.T, file, key, value string) {
		before, err := Parse([]byte(file), Origin{})
		if err != nil || key == "" || strings.ContainsAny(key, "\f\x00") || strings.ContainsRune(value, 0) {
			t.Skip()
		}
		if decodeText([]byte(key)) != key || decodeText([]byte(value)) != value || decodeText([]byte(file)) != file {
			t.Skip()
		}
		text, err := Edit([]byte(file), []Setting{{Key: key, Value: value}})
		if err != nil {
			t.Fatalf("editing a file that parses: %v", err)
		}
		after, err := Parse(text, Origin{})
		if err != nil {
			t.Fatalf("the edited file does not parse: %v\n%q", err, text)
		}
		want := map[string]string{}
		for _, s := range before {
			want[s.Key] = s.Value
		}
		want[key] = strings.TrimRight(value, " \t\f\r\n")
		got := map[string]string{}
		for _, s := range after {
			got[s.Key] = s.Value
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("settings (-want +got):\n%s\nfile %q", d, text)
		}
	})
}
