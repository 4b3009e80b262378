package remoting

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// frameOf builds a frame around a JSON header.
func frameOf(header, body string) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	f = binary.BigEndian.AppendUint32(f, uint32(len(header)))
	f = append(f, header...)
	return append(f, body...)
}

const (
	javaProps = `KEYS\u0001order-4711\u0002UNIQ_KEY\u0001C0A8000A1A2B18B4AAC27F5C3D1E0000\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002CLUSTER\u0001DefaultCluster\u0002`

	// As a 5.3.3 producer sends: keys in alphabetical order, one-letter names.
	java53Send = `{"code":310,"extFields":{"a":"PG","b":"TopicTest","c":"TBW102","d":"4","e":"3","f":"0","g":"1732960000123","h":"0","i":"` +
		javaProps + `","j":"0","k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":17,"serializeTypeCurrentRPC":"JSON","version":479}`

	// As a 4.9.8 producer sends: no broker name.
	java49Send = `{"code":310,"extFields":{"a":"PG","b":"TopicTest","c":"TBW102","d":"4","e":"0","f":"0","g":"1732960000123","h":"0","i":"` +
		javaProps + `","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":-3,"serializeTypeCurrentRPC":"JSON","version":409}`

	// As the Go client sends: long names, struct order, raw separators escaped by
	// its JSON library, an empty remark.
	goSend = `{"code":10,"language":"GO","version":317,"opaque":5,"flag":0,"remark":"","extFields":{"batch":"false","bname":"broker-a","bornTimestamp":"1732960000123","defaultTopic":"TBW102","defaultTopicQueueNums":"4","flag":"0","maxReconsumeTimes":"0","producerGroup":"PG","properties":"TAGS\u0001TagA\u0002UNIQ_KEY\u00010A00000510A20000000041d2a0e00001\u0002","queueId":"1","reconsumeTimes":"0","sysFlag":"0","topic":"TopicTest","unitMode":"false"}}`

	javaPull = `{"code":11,"extFields":{"bname":"broker-a","commitOffset":"12","consumerGroup":"CG","expressionType":"TAG","maxMsgNums":"32","queueId":"2","queueOffset":"9007199254740993","subVersion":"1732960000123","suspendTimeoutMillis":"15000","sysFlag":"3","topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":2147483647,"serializeTypeCurrentRPC":"JSON","version":479}`

	javaHeartbeat = `{"code":34,"extFields":{},"flag":0,"language":"JAVA","opaque":4,"serializeTypeCurrentRPC":"JSON","version":479}`
	javaResponse  = `{"code":0,"extFields":{"queueId":"1","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"7F00000100002A9F0000000000000000","queueOffset":"0"},"flag":1,"language":"JAVA","opaque":9,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":479}`
)

// oddHeaders are headers no client writes every day; most take the general road.
var oddHeaders = []string{
	`{}`,
	` { } `,
	`{"code":10}`,
	"\t{ \"code\" : 10 ,\n\"opaque\": -7 , \"flag\":2}\r\n",
	`{"code":"10","opaque":"5"}`,
	`{"code":null,"remark":null,"extFields":null,"language":null}`,
	`{"language":"COBOL","extFields":{"a":1,"b":true,"c":null,"d":-1.5e3}}`,
	`{"extFields":{"a":{"b":1}}}`,
	`{"extFields":{"a":["x"]}}`,
	`{"extFields":{"a":"1","a":"2"},"code":1,"code":2}`,
	`{"extFields":{"a":"1"},"extFields":{"b":"2"}}`,
	`{"extFields":{"\u0061":"x\"\\\/\b\f\n\r\ty\u20ac\ud83d\ude00\ud83d"}}`,
	`{"remark":"ünïcödé €","extFields":{"k":"日本語","":""}}`,
	"{\"remark\":\"bad \xff utf8\",\"extFields\":{\"\xc3\":\"\xe2\x82\"}}",
	"{\"remark\":\"raw \x01 control\"}",
	`{"remark":"unfinished`,
	`{"remark":"bad escape \x"}`,
	`{"remark":"short \u00"}`,
	`{"code":007}`, `{"code":-}`, `{"code":1.0}`, `{"code":1e2}`, `{"code":2147483648}`, `{"code":-2147483648}`, `{"code":-0}`,
	`{"code":1,}`, `{"code":1}{"code":2}`, `{"code":1}x`, `[1]`, `"x"`, `null`, ``, `{`, `{"code"`, `{"code":`, `{"a" 1}`,
	`{"unknown":{"nested":[1,2,{"x":null}]},"code":3}`,
	`{"unknown":true,"other":"text","code":4}`,
	`{"serializeTypeCurrentRPC":"ROCKETMQ","version":401}`,
	`{"extFields":{"long":"` + strings.Repeat("0123456789abcdef", 40) + `\u0002"}}`,
}

// corpus is every frame of this file, JSON and binary.
func corpus() [][]byte {
	var out [][]byte
	for _, h := range []string{java53Send, java49Send, goSend, javaPull, javaHeartbeat, javaResponse} {
		out = append(out, frameOf(h, "the body"))
	}
	for i, h := range oddHeaders {
		out = append(out, frameOf(h, fmt.Sprint(i)))
	}
	var c Command
	for _, f := range out {
		if DecodeGeneral(f, &c) == nil {
			c.Serialize = SerializeBinary
			out = append(out, Append(nil, &c))
		}
	}
	return out
}
