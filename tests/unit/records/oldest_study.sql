-- A study as the first version of specdyno wrote it. Frozen: it shows that old files stay readable.
BEGIN TRANSACTION;
CREATE TABLE answer (
        request_id INTEGER PRIMARY KEY REFERENCES request (id),
        prompt_sha256 TEXT NOT NULL,
        error TEXT NOT NULL,
        text TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        tool_calls TEXT NOT NULL,
        spec TEXT,
        chunk_stamps BLOB
    );
INSERT INTO "answer" VALUES(1,'1111111111111111111111111111111111111111111111111111111111111111','','return 1','','[]','{"source":"vllm per-request detailed","num_spec_steps":3,"num_draft_tokens":6,"num_accepted_draft_tokens":3,"num_spec_tokens":2,"acceptance_histogram":[1,1,1],"per_step_accepted":[2,0,1],"per_step_drafted":[2,2,2],"estimated":false,"problems":[]}',X'789C636162606000E10A06089083D26C40FCE7FFFFFF001857049E');
CREATE TABLE boot (
        id INTEGER PRIMARY KEY,
        block INTEGER NOT NULL,
        arm TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        position INTEGER NOT NULL,
        status TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        started_unix_ns INTEGER NOT NULL,
        ready_ns INTEGER,
        ended_ns INTEGER,
        ended_unix_ns INTEGER,
        command TEXT NOT NULL,
        identity TEXT,
        failure TEXT NOT NULL,
        log_path TEXT NOT NULL,
        pid INTEGER,
        pid_started REAL,
        memory_bytes INTEGER,
        UNIQUE (block, arm, attempt)
    );
INSERT INTO "boot" VALUES(1,0,'ngram-k2',0,1,'complete',1,2,NULL,NULL,NULL,'["vllm","serve"]','{"engine":"vllm","version":"0.32.0","model":null,"speculation":true,"method":"ngram","draft_tokens":2,"draft":null,"settings":{},"source":""}','','',NULL,NULL,NULL);
CREATE TABLE counter_sample (
        id INTEGER PRIMARY KEY,
        window_id INTEGER NOT NULL REFERENCES window (id),
        moment TEXT NOT NULL CHECK (moment IN ('before', 'after')),
        stamp_ns INTEGER NOT NULL,
        source TEXT NOT NULL,
        process_start REAL,
        series TEXT NOT NULL,
        problems TEXT NOT NULL,
        raw BLOB NOT NULL,
        UNIQUE (window_id, moment)
    );
INSERT INTO "counter_sample" VALUES(1,1,'before',80,'vllm /metrics',NULL,'[["drafts",[["engine","0"]],0.0]]','[]',X'789C4B294A4C2B295630E00200110202DF');
CREATE TABLE finding (
        id INTEGER PRIMARY KEY,
        code TEXT NOT NULL,
        severity TEXT NOT NULL,
        place TEXT NOT NULL,
        detail TEXT NOT NULL,
        arm TEXT,
        load TEXT
    );
INSERT INTO "finding" VALUES(1,'host_busy','note','block 0','',NULL,NULL);
CREATE TABLE request (
        id INTEGER PRIMARY KEY,
        window_id INTEGER NOT NULL REFERENCES window (id),
        list_index INTEGER NOT NULL,
        prompt_id TEXT NOT NULL,
        class_name TEXT NOT NULL,
        outcome TEXT NOT NULL,
        intended_ns INTEGER NOT NULL,
        sent_ns INTEGER NOT NULL,
        first_byte_ns INTEGER,
        first_text_ns INTEGER,
        last_text_ns INTEGER,
        last_byte_ns INTEGER,
        longest_gap_ns INTEGER,
        chunks INTEGER NOT NULL,
        status INTEGER,
        finish_reason TEXT,
        prompt_tokens INTEGER,
        completion_tokens INTEGER,
        cached_tokens INTEGER,
        reasoning_tokens INTEGER,
        max_tokens INTEGER,
        spec_source TEXT,
        spec_steps INTEGER,
        spec_drafted INTEGER,
        spec_accepted INTEGER,
        spec_counts BLOB,
        UNIQUE (window_id, list_index)
    );
INSERT INTO "request" VALUES(1,1,0,'p0','code','finished',100,100,110,120,150,160,30,2,200,'stop',9,7,0,NULL,16,'vllm per-request detailed',3,6,3,X'000000400000803F0000404000000040');
CREATE TABLE study (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        plan TEXT NOT NULL,
        plan_yaml TEXT NOT NULL,
        plan_sha256 TEXT NOT NULL,
        created_unix_ns INTEGER NOT NULL,
        provenance TEXT NOT NULL,
        sizing TEXT NOT NULL
    );
INSERT INTO "study" VALUES(1,'{"study":"oldest"}','study: oldest
','0000000000000000000000000000000000000000000000000000000000000000',1,'{"specdyno":"0.1.0"}','{"pool":1}');
CREATE TABLE window (
        id INTEGER PRIMARY KEY,
        boot_id INTEGER NOT NULL REFERENCES boot (id),
        load TEXT NOT NULL,
        kind TEXT NOT NULL,
        class_name TEXT,
        concurrency INTEGER NOT NULL,
        planned INTEGER NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER,
        client_lag_max_ns INTEGER,
        host_busy REAL
    );
INSERT INTO "window" VALUES(1,1,'pool','mixed',NULL,1,1,90,170,NULL,0.5);
CREATE INDEX window_of_boot ON window (boot_id);
COMMIT;
PRAGMA application_id = 1397769305;
PRAGMA user_version = 1;
